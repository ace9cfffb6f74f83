#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"
#include "prism/bench/profile.h"

namespace prism::bench {

// One row of the roofline table: all launches of a kernel in one step.
struct KernelTime {
  std::string label;
  int64_t launches = 0;
  double ms = 0;
  Work work;
  std::optional<double> library_flops = std::nullopt;  // FLOP/s of torch's products of these shapes (library.h)

  enum class Bound { Launch, Memory, Tensor };
  Bound bound(const Peak& peak) const;            // Launch if the kernel has no work to speak of
  double share_of_bound(const Peak& peak) const;  // time at the bound ÷ measured time
};

const char* name_of(KernelTime::Bound bound);  // "launch", "memory", "tensor"

// Returns the kernels of a step as these launches took them: on a Hopper GPU one kernel takes all products of the
// iteration.
std::vector<Kernel> as_launched(const std::vector<Kernel>& kernels, const std::vector<std::string>& names);

// Returns, for each launch, the index of its kernel in `kernels`; nothing for a launch that does not fit. Elementwise
// kernels and sequences are matched by name, products by position. A step runs in chunks, and each chunk begins with the
// first kernel. The products of a chunk are the means, the Grams, the iteration and the updates, in this order, with
// equally many launches of mean, Gram and update. A product of the iteration is one launch or, if the norms of the Grams
// have kernels of their own, equally many for each: the portable kernel takes the sides of the Grams one by one.
std::vector<std::optional<size_t>> match_launches(const std::vector<std::string>& names,
                                                  const std::vector<Kernel>& kernels);

// The kernels of one step on a GPU. An unknown kernel appears under its own name and without work.
struct Roofline {
  std::vector<KernelTime> kernels;
  int64_t launches = 0;
  double total_ms = 0;
  double idle_ms = 0;  // between kernels
};
Roofline roofline(const std::vector<Span>& spans, const std::vector<Kernel>& kernels);

// Returns the spans of one step of a new optimizer, after some warm-up steps.
std::vector<Span> profile_step(const Entrant& entrant, const std::vector<Tensor>& parameters);

}  // namespace prism::bench
