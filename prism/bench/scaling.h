#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "prism/bench/shapes.h"

namespace prism::bench {

// A model of the optimizer's part of a data-parallel training step on N ranks: its work, what it sends, and how long that
// takes if nothing overlaps. E are the elements of all parameters, in float32.
//   Replicated  all ranks sum all gradients and step all parameters: 8·(N − 1)/N·E bytes
//   Owned       `prism train`: gradients go to the owner of a matrix or of a range of elements, and its weights come back;
//               the same traffic
//   DionLike    a power iteration of rank r = s/4 on local momenta (Ahn et al. 2025): of an m×n matrix only factors are
//               summed, 8·(N − 1)/N·r·(m + n) bytes, and every rank does 8mnr + 2mr² operations for it
enum class Scheme { Replicated, Owned, DionLike };
inline constexpr std::array kSchemes = {Scheme::Replicated, Scheme::Owned, Scheme::DionLike};
const char* name_of(Scheme scheme);  // "replicated", "owned", "dion-like"

struct Link {
  double bytes_per_s = 50e9;  // out of each rank
  double latency_s = 10e-6;   // of one message; an operation of N ranks takes log₂ N of them
};

// The rate of shaping a stack of matrices: small stacks use a device badly.
inline constexpr std::array<int64_t, 4> kStacks = {1, 2, 3, 8};
struct Rates {
  std::array<double, kStacks.size()> flops = {};  // operations/s with so many matrices
  double bytes_per_s = 0;                         // of an elementwise step

  double flops_at(int64_t matrices) const;  // linear in between, constant from 8 on
};

struct ScalingLine {
  double work_s = 0;         // of the slowest rank
  double balance = 1;        // mean over slowest
  double traffic_bytes = 0;  // that a rank sends, on average
  double link_s = 0;
  double state_bytes = 0;  // of the optimizer, on the rank with the most
};
ScalingLine scaling(const ShapeSet& set, Scheme scheme, int64_t ranks, const Rates& rates, const Link& link);

// Measures the rates on square matrices of this device.
Rates measure_rates(at::Device device);

}  // namespace prism::bench
