#pragma once

#include <map>
#include <vector>

#include "prism/bench/kernels.h"

namespace prism::bench {

// The rates in FLOP/s that torch's half-precision products (cuBLAS) reach on the shapes of a spectral step: TᵀT, the
// n×n products of the iteration, and TQ. Symmetric results are computed whole. Each kind runs for `seconds`, so that the
// device gets as hot as it does in long runs; the rate is that of the last calls.
using LibraryRates = std::map<Kernel::Kind, double>;
LibraryRates library_rates(const Options& options, const std::vector<Shape>& shapes, at::Device device, double seconds);

// Sets the library's rate of every product in the table.
void add_library_rates(Roofline& roofline, const std::vector<Kernel>& kernels, const LibraryRates& rates);

// Returns the time of the step if every product ran at the library's rate, symmetric ones at half their cost.
double library_ms(const Roofline& roofline);

// The rates in FLOP/s of products of 512×512 matrices on the CPU, with all threads: ours in float32 and torch's.
struct HostRates {
  double ours = 0, float32 = 0, bfloat16 = 0;
};
HostRates host_rates(int64_t repeats);

}  // namespace prism::bench
