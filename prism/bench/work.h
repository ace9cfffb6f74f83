#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/bench/shapes.h"
#include "prism/optim/options.h"

namespace prism::bench {

constexpr double kFloatBytes = 4;

// The least work of a computation: the floating-point operations of its products (symmetric results cost half) and the
// bytes moved (each operand is read once and each result written once).
struct Work {
  double flop = 0, bytes = 0;
};

// The peak rates of a device.
struct Peak {
  double flops = 0, bytes_per_s = 0;

  double tensor_ms(const Work& work) const { return 1e3 * work.flop / flops; }
  double memory_ms(const Work& work) const { return 1e3 * work.bytes / bytes_per_s; }
  double floor_ms(const Work& work) const { return tensor_ms(work) + memory_ms(work); }
};

// Returns the measured rates of fp16 products with float32 accumulation and of copies; nothing for a device that was
// not measured.
std::optional<Peak> peak_of(const std::string& device_name);

// Returns the work of one step over these shapes with float32 weights and gradients; nothing if the optimizer is not
// modeled. Spectral optimizers: the products of the kernels; G is read, M and W (and the averaged covariance and its
// root) are read and written, averaged over `covariance_every` and `root_every` steps. Adam: G is read, W and two
// averages are read and written.
std::optional<Work> step_work(const Options& options, const std::vector<Shape>& shapes);

// One kernel of a spectral step (prism/cuda/spectral.cpp).
struct Kernel {
  enum class Kind { Elementwise, Mean, Gram, Iteration, Sequence, Update };
  std::string label;
  Kind kind;
  Work work;  // of all matrices together
};

// Returns the kernels of a spectral step in the order of their launches; nothing for other optimizers, nor for the side
// "whitened", whose launches differ from step to step.
std::optional<std::vector<Kernel>> step_kernels(const Options& options, const std::vector<Shape>& shapes);

}  // namespace prism::bench
