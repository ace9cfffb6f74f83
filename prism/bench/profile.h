#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace prism::bench {

// What torch's profiler saw of a kernel on a GPU or of an operator on the CPU.
struct Span {
  std::string name;  // of a kernel without result and arguments
  uint64_t begin_ns = 0, end_ns = 0;
  uint64_t thread = 0;  // on the CPU

  uint64_t duration() const { return end_ns - begin_ns; }
};

// Does the work and waits for it: the GPU's kernels and copies, or the CPU's operators, by their beginning.
std::vector<Span> profile(at::Device device, const std::function<void()>& work);

// How long the device is busy with each span. Kernels may begin before the one in front of them has ended, so a
// kernel's time ends at the latest where the next one begins.
std::vector<double> kernel_ms(const std::vector<Span>& spans);

// How long each operator works itself, those it calls not counted.
std::vector<double> operator_ms(const std::vector<Span>& spans);

// All spans of a name together, the longest time first.
struct ProfileLine {
  std::string name;
  int64_t calls = 0;
  double ms = 0;
};
struct Profile {
  std::vector<ProfileLine> lines;
  double total_ms = 0;  // from the first beginning to the last end
  double idle_ms = 0;   // of that, what belongs to no span
};
Profile summarize(at::Device device, const std::vector<Span>& spans);

}  // namespace prism::bench
