#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "prism/cli/child_process.h"
#include "prism/cli/console.h"
#include "prism/cli/doctor.h"
#include "prism/cuda/device.h"
#include "prism/io/error.h"
#include "prism/train/machine.h"

namespace prism::cli {

namespace fs = std::filesystem;

namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang";
#else
constexpr const char* kCompiler = "g++";
#endif
constexpr const char* kWithoutAmx = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16";

// Returns the version in torch's version.py, such as "2.13.0+cpu"; "" outside a Python package.
std::string installed_version(const fs::path& libraries) {
  const std::string text = train::proc_value(libraries.parent_path() / "version.py", "__version__ =");
  return text.size() > 2 ? text.substr(1, text.size() - 2) : "";
}

Finding check_version() {
  const fs::path libraries = train::torch_libraries();
  const std::string installed = installed_version(libraries);
  const std::string base = installed.substr(0, installed.find('+'));
  if (!installed.empty() && base != TORCH_VERSION) {
    return {Verdict::Problem, "torch", fmt::format("built with {}, but {} is installed", TORCH_VERSION, installed),
            "rebuild: make build"};
  }
  return {Verdict::Ok, "torch",
          fmt::format("{} in {}", installed.empty() ? TORCH_VERSION : installed, libraries.string()), ""};
}

Finding check_libraries() {
  std::vector<std::string> present;
  if (at::Context::hasMKL()) present.emplace_back("MKL");
  if (at::Context::hasMKLDNN()) present.emplace_back("oneDNN");
  if (at::Context::hasLAPACK()) present.emplace_back("LAPACK");
  if (at::Context::hasOpenMP()) present.emplace_back("OpenMP");
  const std::string text = fmt::format("{}; kernels for {}", fmt::join(present, ", "), at::get_cpu_capability());
  if (at::Context::hasLAPACK()) return {Verdict::Ok, "libraries", text, ""};
  return {Verdict::Warning, "libraries", text + "; without LAPACK the exact solver, SOAP and Shampoo do not work",
          "use another build of torch: make setup TORCH=..."};
}

Finding check_processor() {
  const std::string flags = " " + train::proc_value("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string> present;
  for (const auto& [flag, name] : {std::pair{"avx2", "AVX2"}, std::pair{"avx512f", "AVX-512"},
                                   std::pair{"avx512_bf16", "bfloat16"}, std::pair{"amx_bf16", "AMX"}}) {
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) present.emplace_back(name);
  }
  const std::string text =
      fmt::format("{}, {} cores{}{}", train::proc_value("/proc/cpuinfo", "model name"),
                  std::thread::hardware_concurrency(), present.empty() ? "" : ", ", fmt::join(present, ", "));
  if (flags.size() > 2 && present.empty()) {
    return {Verdict::Warning, "processor", text + "; without AVX2 training is very slow", "use a newer processor"};
  }
  return {Verdict::Ok, "processor", text, ""};
}

// Runs this program in a process of its own, with "NAME=value" added to the environment, for at most a minute.
ChildResult run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
  constexpr size_t kMostOutput = size_t{64} << 10;
  ChildProcess child(arguments, {.environment = environment, .errors = -1, .seconds = 60});
  ChildResult result;
  while (child.read(result.output)) result.output.resize(std::min(result.output.size(), kMostOutput));
  const auto [status, signal] = child.wait();
  result.status = status, result.signal = signal;
  return result;
}

std::string ending_of(const ChildResult& child) {
  if (child.signal == SIGILL) return "crashes with an illegal instruction (SIGILL)";
  return child.signal != 0 ? fmt::format("crashes with signal {}", child.signal)
                           : fmt::format("fails: {}", child.output);
}

std::string speed(const ChildResult& child) {
  return fmt::format("matrix product works, {} GFLOP/s", child.output.substr(0, child.output.find('\n')));
}

Finding check_float32() {
  const ChildResult child = run_self({"doctor", "--probe", "float32"});
  if (child.ended_well()) return {Verdict::Ok, "float32", speed(child), ""};
  return {Verdict::Problem, "float32", "a matrix product " + ending_of(child),
          "this torch does not run on this processor; try ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2"};
}

// Returns the number of cores that the container may use, or 0 if nothing limits it.
double core_limit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && period > 0 ? quota / period : 0;
}

Finding check_threads() {
  const int threads = at::get_num_threads();
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const double limit = core_limit();
  if (limit > 0 && threads > limit + 0.5) {
    return {Verdict::Warning, "threads", fmt::format("{}, but this container may use {:.1f} cores", threads, limit),
            fmt::format("export OMP_NUM_THREADS={}", std::max(1, static_cast<int>(limit)))};
  }
  const char* variable = std::getenv("OMP_NUM_THREADS");
  if (variable != nullptr && threads < cores) {
    return {Verdict::Warning, "threads", fmt::format("{} of {} cores, set by OMP_NUM_THREADS", threads, cores),
            "unset OMP_NUM_THREADS to use all cores"};
  }
  return {Verdict::Ok, "threads", fmt::format("{} of {} cores", threads, cores), ""};
}

std::string driver_devices() {
  std::vector<std::string> models;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    models.push_back(train::proc_value(entry.path() / "information", "Model:"));
  }
  return fmt::format("{}", fmt::join(models, ", "));
}

// Returns which kernels the optimizers take on these devices.
std::string kernels_of(int devices) {
  std::set<std::string> kinds;
  for (int device = 0; device < devices; ++device) {
    switch (cuda::product_kernel(device)) {
      case cuda::ProductKernel::Hopper:
        kinds.insert("kernels for compute capability 9.0");
        break;
      case cuda::ProductKernel::Portable:
        kinds.insert("portable kernels");
        break;
      case cuda::ProductKernel::None:
        kinds.insert("no kernels of ours, torch's operations instead");
    }
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

Finding check_cuda() {
  const std::string models = driver_devices();
  const bool has_backend = fs::exists(train::torch_libraries() / "libtorch_cuda.so");
  if (at::Context::hasCUDA()) {
    const int devices = at::detail::getCUDAHooks().getNumGPUs();
    return {Verdict::Ok, "CUDA",
            fmt::format("{}{}{}; {}", io::counted(devices, "device"), models.empty() ? "" : ": ", models,
                        kernels_of(devices)),
            ""};
  }
  if (!models.empty() && !has_backend) {
    return {Verdict::Warning, "CUDA", fmt::format("found {}, but this torch is built without CUDA", models),
            "install a torch with CUDA: make build TORCH=torch==2.11.0 TORCH_INDEX=..."};
  }
  if (has_backend) {
    return {Verdict::Warning, "CUDA", "this torch has CUDA, but no device can be used; training runs on the processor",
            "check the driver with nvidia-smi, and check CUDA_VISIBLE_DEVICES"};
  }
  return {Verdict::Ok, "CUDA", "none; training runs on the processor", ""};
}

}  // namespace

Finding judge_bfloat16(const Probe& probe) {
  const ChildResult child = probe({});
  if (child.ended_well()) return {Verdict::Ok, "bfloat16", speed(child), ""};
  const std::string text = "a matrix product " + ending_of(child);
  if (!probe({kWithoutAmx}).ended_well()) {
    return {Verdict::Warning, "bfloat16", text, "use float32 on the processor (the default)"};
  }
  return {Verdict::Warning, "bfloat16", text,
          fmt::format("export {} before 16-bit work on the processor; float32 (the default) works", kWithoutAmx)};
}

int probe_product(const std::string& type) {
  if (type != "float32" && type != "bfloat16") throw Error("--probe: expected float32 or bfloat16");
  constexpr int64_t kSide = 768;
  constexpr double kSeconds = 0.4;
  const auto A = at::ones({kSide, kSide}, type == "float32" ? at::kFloat : at::kBFloat16);
  for (int warm = 0; warm < 3; ++warm) at::matmul(A, A);
  // The best of many shows the machine's speed even if other programs run.
  double best = std::numeric_limits<double>::infinity();
  for (const Pace pace; pace.seconds() < kSeconds;) {
    const Pace product;
    const auto C = at::matmul(A, A);
    if (C[0][0].item<double>() != kSide) throw std::runtime_error("the product is wrong");
    best = std::min(best, product.seconds());
  }
  fmt::print("{:.0f}\n", 2e-9 * kSide * kSide * kSide / best);
  return 0;
}

std::vector<Finding> check_torch() {
  return {{Verdict::Ok, "program", fmt::format("compiled by {} {}", kCompiler, __VERSION__), ""},
          check_version(),
          check_libraries(),
          check_processor(),
          check_float32(),
          judge_bfloat16([](const auto& environment) {
            return run_self({"doctor", "--probe", "bfloat16"}, environment);
          }),
          check_threads(),
          check_cuda()};
}

}  // namespace prism::cli
