#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace prism::bench {

// One kernel on a GPU or one operator on the CPU, as recorded by torch's profiler.
struct Span {
  std::string name;  // without the result type and arguments of a kernel
  uint64_t begin_ns = 0, end_ns = 0;
  uint64_t thread = 0;  // on the CPU

  uint64_t duration() const { return end_ns - begin_ns; }
};

// Runs `work` and waits for it. Returns the GPU's kernels and copies, or the CPU's operators, in the order they began.
std::vector<Span> profile(at::Device device, const std::function<void()>& work);

// Returns the milliseconds of each kernel. Kernels may overlap, so a kernel's time ends when the next one begins.
std::vector<double> kernel_ms(const std::vector<Span>& spans);

// Returns the milliseconds of each operator, without the operators that it calls.
std::vector<double> operator_ms(const std::vector<Span>& spans);

// All spans of one name.
struct ProfileLine {
  std::string name;
  int64_t calls = 0;
  double ms = 0;
};
struct Profile {
  std::vector<ProfileLine> lines;  // longest time first
  double total_ms = 0;             // from the first beginning to the last end
  double idle_ms = 0;              // the part of total_ms outside all spans
};
Profile summarize(at::Device device, const std::vector<Span>& spans);

}  // namespace prism::bench
