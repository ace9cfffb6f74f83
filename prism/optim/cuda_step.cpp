#include "prism/optim/cuda_step.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
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

// A stack of matrices of this shape, still without pointers. None if there is no kernel: for both sides, and for the
// smaller form of a left side.
std::optional<cuda::MatrixStack> empty_stack(const SpectralKernel& kernel, const std::vector<int64_t>& shape) {
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  const Side side = resolved_side(kernel.side, m, n);
  const bool whitened = side == Side::Whitened, left = whitened || side == Side::Left;
  const bool stacked = !whitened && kernel.rule.noisy && !kernel.rule.averaged && (left ? m : n) > 2 * (left ? n : m);
  if (side == Side::Both || (left && stacked)) return std::nullopt;
  return cuda::MatrixStack{.m = m,
                           .n = n,
                           .left = left,
                           .stacked = stacked,
                           .whitened = whitened,
                           .gamma_scale = gamma_factor(kernel.side, m, n),
                           .scale = scale_factor(kernel.scale, shape)};
}

// The side of the averaged covariances.
int64_t covariance_side(const cuda::MatrixStack& stack) { return stack.left && !stack.whitened ? stack.m : stack.n; }

// γ_t/γ of each entry at the next step; undefined if γ is constant.
Tensor gamma_factors(const SpectralKernel& kernel, const Bucket& bucket) {
  if (!kernel.rule.noisy || kernel.gamma_schedule.is_constant_one()) return {};
  return kernel.gamma_schedule(bucket.state["step"] + 1).to(at::kFloat);
}

// Fills an empty stack with the entries of a bucket.
void fill(cuda::MatrixStack& stack, const Bucket& bucket, const std::vector<DenseEntry>& entries, const Tensor& gamma) {
  stack.gradient = *real_of(entries.front().G.scalar_type());
  stack.weight = *real_of(bucket.type);
  const int64_t m = stack.m, n = stack.n, size = m * n, k = covariance_side(stack);
  const int64_t matrices = c10::multiply_integers(bucket.shape) / size;
  const State& state = bucket.state;
  const Tensor M = state["momentum"], master = state["master"], step = state["step"], C = state["covariance"],
               C_scale = state["covariance_scale"], root = state["root"], root_scale = state["root_scale"],
               row_moment = state["row_moment"];
  for (const auto& entry : entries) {
    for (int64_t e = 0; e < matrices; ++e) {
      const int64_t index = entry.index * matrices + e;
      stack.G.push_back(static_cast<const char*>(entry.G.const_data_ptr()) + e * size * entry.G.itemsize());
      stack.W.push_back(static_cast<char*>(entry.W.mutable_data_ptr()) + e * size * entry.W.itemsize());
      stack.M.push_back(floats(M, index * size));
      if (master.defined()) stack.master.push_back(floats(master, index * size));
      if (step.defined()) stack.step.push_back(floats(step, entry.index));
      if (C.defined()) {
        stack.C.push_back(floats(C, index * k * k));
        stack.C_scale.push_back(floats(C_scale, index));
      }
      if (root.defined()) {
        stack.root.push_back(floats(root, index * n * n));
        stack.root_scale.push_back(floats(root_scale, index));
      }
      if (row_moment.defined()) stack.row_moment.push_back(floats(row_moment, index * m));
      if (gamma.defined()) stack.gamma_factor.push_back(floats(gamma, entry.index));
    }
  }
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
      auto stack = empty_stack(*spectral, bucket.shape);
      if (!stack) continue;
      fill(*stack, bucket, *entries, work.keep.emplace_back(gamma_factors(*spectral, bucket)));
      work.stacks.push_back(std::move(*stack));
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

// ---- matrices that several processes share

namespace {

// The rule for the kernels, if they shape the bucket's matrices.
std::unique_ptr<KernelRule> shared_rule(const Options& options, const Bucket& bucket) {
  if (!bucket.layout || !bucket.device.is_cuda() || !real_of(bucket.type) || !cuda::available(bucket.device.index()) ||
      compute_type(options, bucket.type) != at::kFloat)
    return nullptr;
  auto rule = options.kernel_rule();
  const auto* spectral = rule ? std::get_if<SpectralKernel>(rule.get()) : nullptr;
  const auto shape = whole_shape(options, bucket);
  if (spectral == nullptr || c10::multiply_integers(shape) == 0 || !empty_stack(*spectral, shape)) return nullptr;
  // Of stacked matrices each process must have a part of every one.
  for (size_t d = 0; d + 2 < shape.size(); ++d) {
    if (bucket.layout->is_cut(d)) return nullptr;
  }
  return rule;
}

}  // namespace

std::optional<at::ScalarType> kernel_operands(const Options& options, const Bucket& bucket) {
  const auto rule = shared_rule(options, bucket);
  if (rule == nullptr) return std::nullopt;
  const auto& kernel = std::get<SpectralKernel>(*rule);
  const bool thin = cuda::is_thin(kernel.rule, *empty_stack(kernel, whole_shape(options, bucket)));
  return thin ? at::kFloat : at::kHalf;
}

struct SharedCudaStep::Work {
  const Bucket& bucket;
  std::unique_ptr<KernelRule> rule;
  std::vector<int64_t> shape;  // of a whole entry
  int64_t matrices;            // of an entry
  Tensor sums;                 // (B, matrices, kSums), of whole matrices
  Tensor gamma;                // (B); undefined if γ is constant

  const SpectralKernel& kernel() const { return std::get<SpectralKernel>(*rule); }
  int64_t m() const { return shape[shape.size() - 2]; }
  int64_t n() const { return shape.back(); }

  cuda::MatrixStack whole_stack() const { return *empty_stack(kernel(), shape); }

  // Fills in the pointers to step counters and factors of γ.
  void add_scalars(cuda::MatrixStack& stack, const Tensor& step, const Tensor& factors) const {
    for (size_t i = 0; i < stack.G.size(); ++i) {
      const auto entry = static_cast<int64_t>(i) / matrices;
      if (step.defined()) stack.step.push_back(floats(step, entry));
      if (factors.defined()) stack.gamma_factor.push_back(floats(factors, entry));
    }
  }

  // Returns memory that `keep` keeps alive.
  cuda::Allocate allocate(std::vector<Tensor>& keep) const {
    return [&keep, device = bucket.device](size_t bytes) {
      const auto options = at::TensorOptions().dtype(at::kByte).device(device);
      return keep.emplace_back(at::empty({static_cast<int64_t>(bytes)}, options)).mutable_data_ptr();
    };
  }

  // The measures of whole matrices, of which `parts` are here.
  Tensor whole_sums(const cuda::MatrixStack& parts, int64_t entries, const cuda::Allocate& allocate,
                    void* stream) const {
    const auto doubles = at::TensorOptions().dtype(at::kDouble).device(bucket.device);
    Tensor here = at::zeros({entries, matrices, cuda::kSums}, doubles);
    if (parts.n > 0)
      check(cuda::measure_parts(kernel().rule, parts, here.mutable_data_ptr<double>(), allocate, stream));
    if (bucket.layout->is_replicated()) return here;
    // Zeros for the parts of others: the maximum over the processes brings together the measures of all parts.
    Exchange& exchange = *bucket.layout->exchange;
    Tensor all = at::zeros({exchange.size(), entries, matrices, cuda::kSums}, doubles);
    all[exchange.rank()].copy_(here);
    exchange.maximum(all);
    return at::cat({all.narrow(-1, 0, 2).amax(0), all.narrow(-1, 2, 2).sum(0)}, -1);
  }
};

SharedCudaStep::SharedCudaStep(const Options& options, const Bucket& bucket) {
  const auto shape = whole_shape(options, bucket);
  work_ = std::make_unique<Work>(Work{bucket,
                                      shared_rule(options, bucket),
                                      shape,
                                      c10::multiply_integers(shape) / (shape[shape.size() - 2] * shape.back()),
                                      {},
                                      {}});
}

SharedCudaStep::~SharedCudaStep() = default;

Operands SharedCudaStep::operands(const Tensor& G, const State& state) {
  Work& work = *work_;
  const auto& [rule, side, scale, schedule] = work.kernel();
  const Tensor step = state["step"], M = state["momentum"];
  if (step.defined()) step.add_(1);
  if (rule.noisy && !schedule.is_constant_one()) work.gamma = schedule(step).to(at::kFloat);

  const int64_t entries = G.size(0), elements = G.numel() / (entries * work.matrices);
  cuda::MatrixStack parts{.m = 1, .n = elements, .gamma_scale = gamma_factor(side, work.m(), work.n())};
  for (int64_t i = 0; i < entries * work.matrices; ++i) {
    parts.G.push_back(floats(G, i * elements));
    parts.M.push_back(floats(M, i * elements));
  }
  work.add_scalars(parts, step, work.gamma);

  const c10::DeviceGuard guard(work.bucket.device);
  void* stream = stream_of(work.bucket.device);
  std::vector<Tensor> keep;
  const cuda::Allocate allocate = work.allocate(keep);
  const bool thin = cuda::is_thin(rule, work.whole_stack());
  if (!thin) work.sums = work.whole_sums(parts, entries, allocate, stream);

  const bool is_due = !rule.averaged || rule.covariance_every == 1 ||
                      step.sub(1).remainder(rule.covariance_every).eq(0).any().item<bool>();
  Operands result{at::empty({entries, work.matrices * elements}, G.options().dtype(thin ? at::kFloat : at::kHalf))};
  if (rule.noisy && is_due) result.D = at::empty_like(result.T);
  void* D = result.D.defined() ? result.D.mutable_data_ptr() : nullptr;
  if (elements > 0) {
    check(cuda::form_operands(rule, parts, thin ? nullptr : work.sums.const_data_ptr<double>(),
                              result.T.mutable_data_ptr(), D, allocate, stream));
  }
  return result;
}

Tensor SharedCudaStep::shape(const Operands& whole, const State& state, const std::vector<int64_t>& owned) const {
  const Work& work = *work_;
  const auto& rule = work.kernel().rule;
  const Tensor chosen = at::tensor(owned, at::kLong).to(work.bucket.device);
  const Tensor sums = work.sums.defined() ? work.sums.index_select(0, chosen) : Tensor();
  const Tensor gamma = work.gamma.defined() ? work.gamma.index_select(0, chosen) : Tensor();
  const Tensor U = at::zeros(whole.T.sizes(), whole.T.options().dtype(at::kFloat));
  cuda::MatrixStack stack = work.whole_stack();
  const int64_t count = static_cast<int64_t>(owned.size()) * work.matrices;
  const int64_t k = covariance_side(stack);
  for (int64_t i = 0; i < count; ++i) {
    stack.G.push_back(nullptr);
    stack.M.push_back(nullptr);
    stack.W.push_back(floats(U, i * work.m() * work.n()));
    if (state["row_moment"].defined()) stack.row_moment.push_back(floats(state["row_moment"], i * work.m()));
    if (!state["covariance"].defined()) continue;
    stack.C.push_back(floats(state["covariance"], i * k * k));
    stack.C_scale.push_back(floats(state["covariance_scale"], i));
    if (!state["root"].defined()) continue;
    stack.root.push_back(floats(state["root"], i * k * k));
    stack.root_scale.push_back(floats(state["root_scale"], i));
  }
  work.add_scalars(stack, state["step"], gamma);
  const Tensor T = whole.T.contiguous(), D = whole.D.defined() ? whole.D.contiguous() : whole.D;
  const c10::DeviceGuard guard(work.bucket.device);
  std::vector<Tensor> keep;
  check(cuda::shape_operands(rule, stack, sums.defined() ? sums.const_data_ptr<double>() : nullptr, T.const_data_ptr(),
                             D.defined() ? D.const_data_ptr() : nullptr, work.allocate(keep),
                             work.bucket.device.index(), stream_of(work.bucket.device)));
  return U;
}

bool is_capturing(at::Device device) {
  return device.is_cuda() && cuda::available(device.index()) && cuda::is_capturing(stream_of(device));
}

}  // namespace prism
