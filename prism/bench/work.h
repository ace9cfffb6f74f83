#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/bench/shapes.h"
#include "prism/optim/options.h"

namespace prism::bench {

// What a piece of work takes at the least: floating-point operations of products, symmetric results at half cost, and
// bytes moved, each operand read and each result written once.
struct Work {
  double flop = 0, bytes = 0;
};

// What a device can do.
struct Peak {
  double flops = 0, bytes_per_s = 0;

  double tensor_ms(const Work& work) const { return 1e3 * work.flop / flops; }
  double memory_ms(const Work& work) const { return 1e3 * work.bytes / bytes_per_s; }
  double floor_ms(const Work& work) const { return tensor_ms(work) + memory_ms(work); }
};

// fp16 products with float32 accumulation and copies, as measured; nothing for a device that was not measured.
std::optional<Peak> peak_of(const std::string& device_name);

// One whole step over these shapes, float32 weights and gradients. Matrices m×n, m ≥ n, of the spectral optimizers: the
// products that the kernels form, and G read, M and W (and the averaged covariance) read and written. Adam: G read, W
// and two averages read and written. Nothing for optimizers whose work is not modeled.
std::optional<Work> step_work(const Options& options, const std::vector<Shape>& shapes);

// The kernels of a spectral step in the order of their launches (prism/cuda/spectral.cpp).
struct Kernel {
  enum class Kind { Elementwise, Mean, Gram, Iteration, Update };
  std::string label;
  Kind kind;
  Work work;  // of all matrices together
};
std::optional<std::vector<Kernel>> step_kernels(const Options& options, const std::vector<Shape>& shapes);

}  // namespace prism::bench
