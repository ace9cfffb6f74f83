#include "prism/optim/cuda_step.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

#include "prism/optim/kernel_rule.h"
#include "prism/optim/spectral.h"

namespace prism {
namespace {

std::optional<cuda::Real> real_of(at::ScalarType type) {
  if (type == at::kFloat) return cuda::Real::Float32;
  if (type == at::kHalf) return cuda::Real::Float16;
  if (type == at::kBFloat16) return cuda::Real::BFloat16;
  return std::nullopt;
}

// Passes a scalar of a step to the kernels on `device`. `keep` keeps converted copies alive.
cuda::Number number_of(const Tensor& value, at::Device device, std::vector<Tensor>& keep) {
  if (value.is_cpu()) return {.value = value.item<double>()};
  const bool is_double = value.scalar_type() == at::kDouble;
  keep.push_back(value.to(device).to(is_double ? at::kDouble : at::kFloat));
  return {.device = keep.back().const_data_ptr(), .is_double = is_double};
}

float* floats(const Tensor& stack, int64_t offset = 0) {
  return stack.defined() ? stack.mutable_data_ptr<float>() + offset : nullptr;
}

bool usable(const Bucket& bucket) {
  return !bucket.layout && bucket.device.is_cuda() && real_of(bucket.type) &&
         c10::multiply_integers(bucket.shape) > 0 && cuda::available(bucket.device.index());
}

// ---- matrices

// The Gram matrix the kernels form.
struct Form {
  bool left = false;
  bool stacked = false;  // of the stack [T; γD], if that is smaller
};

// None if there is no kernel: for both sides, and for the smaller form of a left side.
std::optional<Form> form_of(const cuda::SpectralRule& rule, Side side, int64_t m, int64_t n) {
  side = resolved_side(side, m, n);
  if (side == Side::Both) return std::nullopt;
  const bool left = side == Side::Left;
  const bool is_long = rule.noisy && !rule.averaged && (left ? m : n) > 2 * (left ? n : m);
  if (left && is_long) return std::nullopt;
  return Form{left, is_long};
}

// γ_t/γ of each entry at the next step; undefined if γ is constant.
Tensor gamma_factors(const SpectralKernel& kernel, const Bucket& bucket) {
  if (!kernel.rule.noisy || kernel.gamma_schedule.is_constant_one()) return {};
  return kernel.gamma_schedule(bucket.state["step"] + 1).to(at::kFloat);
}

cuda::MatrixStack stack_of(const Bucket& bucket, const std::vector<DenseEntry>& entries, const SpectralKernel& kernel,
                           const Form& form, const Tensor& gamma) {
  const int64_t m = bucket.shape[bucket.shape.size() - 2], n = bucket.shape.back();
  const int64_t size = m * n, matrices = c10::multiply_integers(bucket.shape) / size, k = form.left ? m : n;
  cuda::MatrixStack stack{.m = m,
                          .n = n,
                          .left = form.left,
                          .stacked = form.stacked,
                          .gradient = *real_of(entries.front().G.scalar_type()),
                          .weight = *real_of(bucket.type),
                          .gamma_scale = gamma_factor(kernel.side, m, n),
                          .scale = scale_factor(kernel.scale, bucket.shape)};
  const State& state = bucket.state;
  for (const auto& entry : entries) {
    for (int64_t e = 0; e < matrices; ++e) {
      const int64_t index = entry.index * matrices + e;
      stack.G.push_back(static_cast<const char*>(entry.G.const_data_ptr()) + e * size * entry.G.itemsize());
      stack.W.push_back(static_cast<char*>(entry.W.mutable_data_ptr()) + e * size * entry.W.itemsize());
      stack.M.push_back(floats(state["momentum"], index * size));
      if (state["master"].defined()) stack.master.push_back(floats(state["master"], index * size));
      if (state["step"].defined()) stack.step.push_back(floats(state["step"], entry.index));
      if (state["covariance"].defined()) {
        stack.C.push_back(floats(state["covariance"], index * k * k));
        stack.C_scale.push_back(floats(state["covariance_scale"], index));
      }
      if (state["row_moment"].defined()) stack.row_moment.push_back(floats(state["row_moment"], index * m));
      if (gamma.defined()) stack.gamma_factor.push_back(floats(gamma, entry.index));
    }
  }
  return stack;
}

// ---- vectors

std::vector<cuda::Vector> vectors_of(const Bucket& bucket, const std::vector<DenseEntry>& entries,
                                     const ElementwiseKernel& kernel) {
  std::vector<cuda::Vector> vectors;
  const int64_t size = c10::multiply_integers(bucket.shape);
  for (const auto& entry : entries) {
    cuda::Vector vector{.size = size,
                        .gradient = *real_of(entry.G.scalar_type()),
                        .weight = *real_of(bucket.type),
                        .G = entry.G.const_data_ptr(),
                        .W = entry.W.mutable_data_ptr(),
                        .master = floats(bucket.state["master"], entry.index * size),
                        .step = floats(bucket.state["step"], entry.index)};
    for (size_t f = 0; f < kernel.fields.size(); ++f)
      vector.state[f] = floats(bucket.state[kernel.fields[f]], entry.index * size);
    vectors.push_back(vector);
  }
  return vectors;
}

void* stream_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

void check(int error) {
  TORCH_CHECK(error == 0, "prism: a CUDA kernel could not be launched: ", cuda::error_text(error));
}

}  // namespace

struct CudaStep::Work {
  at::Device device = at::kCPU;
  std::unique_ptr<KernelRule> rule;
  std::vector<Tensor> keep;  // converted scalars and copied gradients, until everything is launched
  cuda::StepScalars scalars;
  std::vector<cuda::MatrixStack> stacks;
  std::vector<cuda::Vector> vectors;
};

CudaStep::CudaStep(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                   const std::vector<Tensor>& gradients, const StepInputs& inputs)
    : taken_(buckets.size(), false), work_(std::make_unique<Work>()) {
  Work& work = *work_;
  if (std::none_of(buckets.begin(), buckets.end(), usable)) return;
  work.rule = options.kernel_rule();
  if (work.rule == nullptr) return;
  auto* spectral = std::get_if<SpectralKernel>(work.rule.get());
  const auto* elementwise = std::get_if<ElementwiseKernel>(work.rule.get());
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    if (!usable(bucket) || (work.device.is_cuda() && work.device != bucket.device)) continue;
    const auto entries = dense_entries(options, bucket, parameters, gradients, at::kFloat);
    if (!entries || entries->empty() || !real_of(entries->front().G.scalar_type())) continue;
    if (spectral != nullptr) {
      const auto form =
          form_of(spectral->rule, spectral->side, bucket.shape[bucket.shape.size() - 2], bucket.shape.back());
      if (!form) continue;
      const Tensor gamma = gamma_factors(*spectral, bucket);
      work.stacks.push_back(stack_of(bucket, *entries, *spectral, *form, gamma));
      work.keep.push_back(gamma);
    } else {
      if (entries->front().G.scalar_type() != bucket.type) continue;
      for (const auto& vector : vectors_of(bucket, *entries, *elementwise)) work.vectors.push_back(vector);
    }
    for (const auto& entry : *entries) work.keep.push_back(entry.G);
    work.device = bucket.device;
    taken_[b] = true;
  }
  if (!work.device.is_cuda() || !inputs.lr.defined()) return;
  work.scalars.lr = number_of(inputs.lr, work.device, work.keep);
  if (inputs.gamma.defined() && spectral != nullptr && spectral->rule.noisy)
    spectral->rule.gamma = number_of(inputs.gamma, work.device, work.keep);
  work.scalars.weight_decay = options.weight_decay();
  work.scalars.maximize = options.maximize();
  const auto here = [&](const Tensor& value, at::ScalarType type) {
    return work.keep.emplace_back(value.to(work.device).to(type)).const_data_ptr();
  };
  if (inputs.apply.defined()) work.scalars.apply = static_cast<const bool*>(here(inputs.apply, at::kBool));
  if (inputs.grad_scale.defined())
    work.scalars.grad_scale = static_cast<const float*>(here(inputs.grad_scale, at::kFloat));
}

CudaStep::~CudaStep() = default;

void CudaStep::run(const Allocate& allocate) const {
  const Work& work = *work_;
  if (!work.device.is_cuda()) return;
  const c10::DeviceGuard guard(work.device);
  void* stream = stream_of(work.device);
  if (!work.stacks.empty()) {
    check(cuda::spectral_step(
        std::get<SpectralKernel>(*work.rule).rule, work.scalars, work.stacks,
        [&](size_t bytes) { return allocate(bytes, work.device); }, work.device.index(), stream));
  }
  if (!work.vectors.empty()) {
    check(cuda::elementwise_step(std::get<ElementwiseKernel>(*work.rule).rule, work.scalars, work.vectors,
                                 work.device.index(), stream));
  }
}

bool is_capturing(at::Device device) {
  return device.is_cuda() && cuda::available(device.index()) && cuda::is_capturing(stream_of(device));
}

}  // namespace prism
