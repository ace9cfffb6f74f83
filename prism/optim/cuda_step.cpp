#include "prism/optim/cuda_step.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

#include "prism/cuda/launch.h"
#include "prism/linalg/gram.h"
#include "prism/optim/adagrad.h"
#include "prism/optim/adam.h"
#include "prism/optim/muon.h"
#include "prism/optim/prism.h"
#include "prism/optim/rmsprop.h"
#include "prism/optim/tikhonov_muon.h"

namespace prism {
namespace {

std::optional<cuda::Real> real_of(at::ScalarType type) {
  if (type == at::kFloat) return cuda::Real::Float32;
  if (type == at::kHalf) return cuda::Real::Float16;
  if (type == at::kBFloat16) return cuda::Real::BFloat16;
  return std::nullopt;
}

// A scalar of a step on the device of the work; `keep` holds what had to be converted.
cuda::Number number_of(const Tensor& value, at::Device device, std::vector<Tensor>& keep) {
  if (value.is_cpu()) return {.value = value.item<double>()};
  const bool is_double = value.scalar_type() == at::kDouble;
  keep.push_back(value.to(device).to(is_double ? at::kDouble : at::kFloat));
  return {.device = keep.back().const_data_ptr(), .is_double = is_double};
}

float* floats(const Tensor& stack, int64_t offset = 0) {
  return stack.defined() ? stack.mutable_data_ptr<float>() + offset : nullptr;
}

// One entry of a bucket: contiguous memory of its gradient and its weights.
struct Entry {
  int64_t index;  // in the bucket's stacks
  Tensor G, W;
};

// The entries that have gradients; nothing where a type or layout is not one for the kernels.
std::optional<std::vector<Entry>> entries_of(const Options& options, const Bucket& bucket,
                                             const std::vector<Tensor>& parameters,
                                             const std::vector<Tensor>& gradients) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    if (!gradients.at(bucket.entries[i].parameter).defined()) continue;
    const Bucket one{{bucket.entries[i]}, bucket.shape, bucket.type, bucket.device, {}};
    const Tensor W = weights_of(options, one, parameters).front();
    const Tensor G = weights_of(options, one, gradients).front();
    if (!W.is_contiguous() || !real_of(G.scalar_type())) return std::nullopt;
    entries.push_back({static_cast<int64_t>(i), G.contiguous(), W});
    if (G.scalar_type() != entries.front().G.scalar_type()) return std::nullopt;
  }
  for (const auto& [name, stack] : bucket.state) {
    if (stack.scalar_type() != at::kFloat || !stack.is_contiguous()) return std::nullopt;
  }
  return entries;
}

bool usable(const Bucket& bucket) {
  return bucket.device.is_cuda() && real_of(bucket.type) && c10::multiply_integers(bucket.shape) > 0 &&
         cuda::available(bucket.device.index());
}

// ---- matrices

// The Gram matrix the kernels form.
struct Form {
  bool left = false;
  bool stacked = false;  // of [T; γD], where that is smaller
};

// None where there is no kernel: for both sides, and for the smaller form of a left side.
std::optional<Form> form_of(const cuda::SpectralRule& rule, Side side, int64_t m, int64_t n) {
  side = resolved_side(side, m, n);
  if (side == Side::Both) return std::nullopt;
  const bool left = side == Side::Left;
  const bool is_long = rule.noisy && !rule.averaged && (left ? m : n) > 2 * (left ? n : m);
  if (left && is_long) return std::nullopt;
  return Form{left, is_long};
}

struct Spectral {
  cuda::SpectralRule rule;
  Side side = Side::Auto;
  ScaleRule scale{};
};

std::optional<Spectral> spectral_of(const Options& options) {
  const auto rule = spectral_rule(options);
  if (!rule) return std::nullopt;
  Spectral spectral{*rule, Side::Auto, dynamic_cast<const MomentumOptions&>(options).scale()};
  if (const auto* prism = dynamic_cast<const PrismOptions*>(&options); prism != nullptr && rule->noisy)
    spectral.side = prism->side();
  return spectral;
}

// γ_t/γ of each entry at the step to come; undefined where γ does not change.
Tensor gamma_factors(const Options& options, const Bucket& bucket) {
  const auto* prism = dynamic_cast<const PrismOptions*>(&options);
  if (prism == nullptr || prism->gamma() == 0 || prism->gamma_schedule().is_constant_one()) return {};
  return prism->gamma_schedule()(bucket.state["step"] + 1).to(at::kFloat);
}

cuda::MatrixStack stack_of(const Bucket& bucket, const std::vector<Entry>& entries, const Spectral& spectral,
                           const Form& form, const Tensor& gamma) {
  const int64_t m = bucket.shape[bucket.shape.size() - 2], n = bucket.shape.back();
  const int64_t size = m * n, matrices = c10::multiply_integers(bucket.shape) / size, k = form.left ? m : n;
  cuda::MatrixStack stack{.m = m,
                          .n = n,
                          .left = form.left,
                          .stacked = form.stacked,
                          .gradient = *real_of(entries.front().G.scalar_type()),
                          .weight = *real_of(bucket.type),
                          .scale = scale_factor(spectral.scale, bucket.shape)};
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
      if (gamma.defined()) stack.gamma_factor.push_back(floats(gamma, entry.index));
    }
  }
  return stack;
}

// ---- vectors

std::optional<cuda::ElementwiseRule> elementwise_rule(const Options& options) {
  cuda::ElementwiseRule rule{.couples_decay = options.couples_decay()};
  if (const auto* adam = dynamic_cast<const AdamFamilyOptions*>(&options)) {
    rule.kind = cuda::Elementwise::Adam;
    std::tie(rule.beta1, rule.beta2) = adam->betas();
    rule.eps = adam->eps();
  } else if (const auto* adagrad = dynamic_cast<const AdaGradOptions*>(&options)) {
    rule.kind = cuda::Elementwise::AdaGrad;
    rule.eps = adagrad->eps();
    rule.lr_decay = adagrad->lr_decay();
  } else if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) {
    rule.kind = cuda::Elementwise::RMSprop;
    rule.beta1 = rmsprop->momentum();
    rule.beta2 = rmsprop->alpha();
    rule.eps = rmsprop->eps();
  } else {
    return std::nullopt;
  }
  return rule;
}

std::vector<cuda::Vector> vectors_of(const Bucket& bucket, const std::vector<Entry>& entries, cuda::Elementwise kind) {
  static const std::vector<std::vector<const char*>> kFields = {
      {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {"sum"}, {"square_avg", "grad_avg", "momentum_buffer"}};
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
    const auto& fields = kFields[static_cast<size_t>(kind)];
    for (size_t f = 0; f < fields.size(); ++f) vector.state[f] = floats(bucket.state[fields[f]], entry.index * size);
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
  std::vector<Tensor> keep;  // converted scalars and copied gradients, until everything is launched
  cuda::StepScalars scalars;
  std::optional<Spectral> spectral;
  std::vector<cuda::MatrixStack> stacks;
  std::optional<cuda::ElementwiseRule> elementwise;
  std::vector<cuda::Vector> vectors;
};

CudaStep::CudaStep(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                   const std::vector<Tensor>& gradients, const StepInputs& inputs)
    : taken_(buckets.size(), false), work_(std::make_unique<Work>()) {
  Work& work = *work_;
  if (std::none_of(buckets.begin(), buckets.end(), usable)) return;
  work.spectral = spectral_of(options);
  work.elementwise = elementwise_rule(options);
  if (!work.spectral && !work.elementwise) return;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    if (!usable(bucket) || (work.device.is_cuda() && work.device != bucket.device)) continue;
    const auto entries = entries_of(options, bucket, parameters, gradients);
    if (!entries || entries->empty()) continue;
    if (work.spectral) {
      const auto form =
          form_of(work.spectral->rule, work.spectral->side, bucket.shape[bucket.shape.size() - 2], bucket.shape.back());
      if (!form) continue;
      const Tensor gamma = gamma_factors(options, bucket);
      work.stacks.push_back(stack_of(bucket, *entries, *work.spectral, *form, gamma));
      work.keep.push_back(gamma);
    } else {
      if (entries->front().G.scalar_type() != bucket.type) continue;
      for (const auto& vector : vectors_of(bucket, *entries, work.elementwise->kind)) work.vectors.push_back(vector);
    }
    for (const auto& entry : *entries) work.keep.push_back(entry.G);
    work.device = bucket.device;
    taken_[b] = true;
  }
  if (!work.device.is_cuda()) return;
  work.scalars.lr = number_of(inputs.lr, work.device, work.keep);
  if (inputs.gamma.defined() && work.spectral && work.spectral->rule.noisy) {
    work.spectral->rule.gamma = number_of(inputs.gamma, work.device, work.keep);
  }
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

std::optional<cuda::SpectralRule> spectral_rule(const Options& options) {
  const auto* momentum = dynamic_cast<const MomentumOptions*>(&options);
  if (momentum == nullptr || momentum->solver() != Solver::Gram || momentum->normalize() != Normalize::None)
    return std::nullopt;
  const Coefficients coefficients = momentum->polar().coefficients;
  cuda::SpectralRule rule;
  rule.momentum = momentum->momentum();
  rule.nesterov = momentum->nesterov();
  rule.bias_correction = momentum->bias_correction();
  rule.bound = coefficients.bound();
  rule.by_norm = coefficients.norm() == Norm::Schatten4;
  for (const auto& step : gram_steps(coefficients)) {
    if (step.c.size() != 3 && step.c.size() != 5) return std::nullopt;
    rule.steps.push_back({step.c, step.centred, step.split});
  }
  if (const auto* prism = dynamic_cast<const PrismOptions*>(&options)) {
    if (prism->covariance() == CovarianceKind::Sketch || prism->covariance_every() > 1) return std::nullopt;
    rule.gamma.value = prism->gamma();
    rule.noisy = prism->gamma() > 0;
    rule.averaged = prism->covariance() == CovarianceKind::Ema;
    rule.covariance_beta = prism->covariance_beta();
    if (rule.averaged && !rule.noisy) return std::nullopt;
  } else if (const auto* tikhonov = dynamic_cast<const TikhonovMuonOptions*>(&options)) {
    if (tikhonov->damping_absolute() > 0) return std::nullopt;
    rule.damping = tikhonov->damping();
  } else if (dynamic_cast<const MuonOptions*>(&options) == nullptr) {
    return std::nullopt;
  }
  return rule;
}

bool is_capturing(at::Device device) {
  return device.is_cuda() && cuda::available(device.index()) && cuda::is_capturing(stream_of(device));
}

int64_t CudaStep::workspace_bytes() const {
  return work_->stacks.empty() ? 0
                               : static_cast<int64_t>(cuda::spectral_workspace(work_->spectral->rule, work_->stacks));
}

void CudaStep::run(const Tensor& workspace) {
  Work& work = *work_;
  if (!work.device.is_cuda()) return;
  const c10::DeviceGuard guard(work.device);
  void* stream = stream_of(work.device);
  if (!work.stacks.empty()) {
    check(cuda::spectral_step(work.spectral->rule, work.scalars, work.stacks, workspace.mutable_data_ptr(),
                              work.device.index(), stream));
  }
  if (!work.vectors.empty()) {
    check(cuda::elementwise_step(*work.elementwise, work.scalars, work.vectors, work.device.index(), stream));
  }
}

}  // namespace prism
