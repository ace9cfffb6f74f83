#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"
#include "prism/bench/profile.h"

namespace prism::bench {

// One line of the roofline table: all launches of a kernel in one step.
struct KernelTime {
  std::string label;
  int64_t launches = 0;
  double ms = 0;
  Work work;

  enum class Bound { Launch, Memory, Tensor };
  Bound bound(const Peak& peak) const;            // launch: neither products nor memory that counts
  double share_of_bound(const Peak& peak) const;  // the bound's own time over the measured
};

const char* word(KernelTime::Bound bound);  // "launch", "memory", "tensor"

// Which of the step's kernels each launch is, by name for the elementwise ones and by place for the products: chunk by
// chunk, each begun by the first kernel, the averages, the Grams, the iteration and the updates follow each other, the
// first, second and last in equally many launches. An index into `kernels`; nothing for a launch that does not fit.
std::vector<std::optional<size_t>> match_launches(const std::vector<std::string>& names,
                                                  const std::vector<Kernel>& kernels);

// The kernels of one step on a GPU, whatever is not known under its own name and without work.
struct Roofline {
  std::vector<KernelTime> kernels;
  int64_t launches = 0;
  double total_ms = 0;
  double idle_ms = 0;  // between kernels
};
Roofline roofline(const std::vector<Span>& spans, const std::vector<Kernel>& kernels);

// The spans of one step of a fresh optimizer, after some to warm up.
std::vector<Span> profile_step(const Entrant& entrant, const std::vector<Tensor>& parameters);

}  // namespace prism::bench
