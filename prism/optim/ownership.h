#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace prism {

// A matrix, or a stack of them, that one rank is to shape.
struct Job {
  std::string name;
  double cost;
};

// Distributes jobs over ranks that already have these loads, and adds to the loads: the most expensive job first, each
// to the rank with the least load (longest processing time, Graham 1969: at most 4/3 − 1/(3N) of the optimum from empty
// loads). Equal costs go by name and equal loads to the lower rank, so the result does not depend on the order of the
// jobs. Returns the rank of each job.
std::vector<int64_t> assign(const std::vector<Job>& jobs, std::vector<double>& loads);

// The side k of a Gram matrix that shaping forms at each step, and the number of steps between two iterations on it.
struct GramSide {
  int64_t side;
  int64_t every = 1;

  bool operator==(const GramSide&) const = default;
};

// The cost of shaping matrices (…, m, n), in multiplications: 17k³/every + 4kmn for each of `sides` (Options::gram_sides),
// and kPerByte for each byte that the exchange moves. Without `sides`: the short side s, which gives (17 + 4α)s³ with the
// aspect α = max(m, n)/min(m, n).
inline constexpr double kPerByte = 100;
double shaping_cost(at::IntArrayRef shape, int64_t bytes_per_element, const std::vector<GramSide>& sides = {});

}  // namespace prism
