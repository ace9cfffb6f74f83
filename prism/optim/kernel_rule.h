#pragma once

#include <array>
#include <variant>

#include "prism/cuda/steps.h"
#include "prism/optim/options.h"

namespace prism {

// A matrix rule for the kernels: what they compute, and how a stack of matrices is passed to them.
struct SpectralKernel {
  cuda::SpectralRule rule;
  Side side = Side::Short;
  ScaleRule scale = ScaleRule::None;
  Schedule gamma_schedule = {};
};

// An elementwise rule, and the names of its state fields in the order in which the kernels take them.
struct ElementwiseKernel {
  cuda::ElementwiseRule rule;
  std::array<const char*, 3> fields = {"", "", ""};
};

struct KernelRule : std::variant<SpectralKernel, ElementwiseKernel> {
  using variant::variant;
};

// The part that Muon, PRISM and TikhonovMuon share; none if the kernels do not support it.
std::unique_ptr<KernelRule> momentum_kernel(const Momentum& momentum, const PolarOptions& polar);

}  // namespace prism
