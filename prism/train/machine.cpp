#include "prism/train/machine.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <regex>
#include <thread>

#include "prism/cuda/device.h"
#include "prism/io/error.h"
#include "prism/io/spelling.h"

namespace prism::train {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string now_in_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

int64_t peak(const at::CachingDeviceAllocator::StatArray& array) {
  return array[static_cast<size_t>(at::CachingDeviceAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

std::string driver_version(const std::string& text) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(R"(\b\d+\.\d+(\.\d+)*\b)")) ? match.str() : "";
}

std::string proc_value(const std::filesystem::path& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(": \t", key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::filesystem::path torch_libraries() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  std::array<char, 4096> folder{};
  const bool found = dlinfo(library, RTLD_DI_ORIGIN, folder.data()) == 0;
  dlclose(library);
  return found ? folder.data() : "";
}

int64_t memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

at::Device device_of(const std::string& name, const std::string& who) {
  const bool cuda = at::Context::hasCUDA();
  if (name == "auto") return cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cpu") return at::kCPU;
  int64_t index = -1;
  if (name == "cuda") index = 0;
  if (name.starts_with("cuda:") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos &&
      name.size() < 9) {
    index = std::stoll(name.substr(5));
  }
  if (index < 0) throw Error(fmt::format("{}: expected auto, cpu, cuda or cuda:N, got \"{}\"", who, name));
  const int64_t devices = cuda ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  if (index >= devices) {
    throw Error(fmt::format("{}: no device \"{}\": torch {} finds {}; use cpu", who, name, TORCH_VERSION,
                            io::counted(devices, "CUDA device")));
  }
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

Machine machine(at::Device device) {
  utsname system{};
  uname(&system);
  Machine result;
  result.commit = build_commit();
  result.compiler = fmt::format("{} {}", __VERSION__[0] >= '0' && __VERSION__[0] <= '9' ? "g++" : "", __VERSION__);
  result.cores = std::thread::hardware_concurrency();
  result.cpu = proc_value("/proc/cpuinfo", "model name");
  result.date = now_in_utc();
  result.device = device.str();
  result.memory_bytes = memory_bytes();
  result.system = fmt::format("{} {}", system.sysname, system.machine);
  result.threads = at::get_num_threads();
  result.torch = TORCH_VERSION;
  if (!device.is_cuda()) return result;
  const long version = at::detail::getCUDAHooks().versionCUDART();  // 1000 · major + 10 · minor
  result.cuda = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  result.driver = or_unknown(driver_version(first_line("/proc/driver/nvidia/version")));
  result.gpu = or_unknown(cuda::device_name(device.index()));
  return result;
}

PeakMemory peak_memory(at::Device device) {
  const auto kib = proc_value("/proc/self/status", "VmHWM");
  PeakMemory result{.host = kib.empty() ? 0 : std::stoll(kib) * 1024};
  if (device.is_cpu()) return result;
  const auto stats = at::accelerator::getDeviceStats(device.index());
  result.device = peak(stats.allocated_bytes);
  result.reserved = peak(stats.reserved_bytes);
  return result;
}

void reset_peak_memory(at::Device device) {
  std::ofstream("/proc/self/clear_refs") << "5";  // best effort: if it fails, the peak is that of the whole process
  if (device.is_cpu()) return;
  at::globalContext().lazyInitDevice(device.type());  // the allocator has no statistics to reset before this
  at::accelerator::resetPeakStats(device.index());
}

}  // namespace prism::train
