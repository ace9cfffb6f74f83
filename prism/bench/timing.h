#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace prism::bench {

// Returns "NVIDIA H200", or the processor's name and number of threads.
std::string device_name(at::Device device);

// Sends work on a GPU to another stream than the default one while it lives, so that it can be captured. Does nothing
// on the CPU.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);

 private:
  std::optional<c10::StreamGuard> guard_;
};

constexpr int64_t kWarmUpSteps = 3;  // before a measurement; the second may be captured into a graph

// Returns the milliseconds of each call. On a GPU measures with events on the current stream and does not wait between
// calls.
std::vector<double> time_calls(at::Device device, int64_t repeats, const std::function<void()>& call);

// Captures the call in a CUDA graph and returns the milliseconds of each replay. The call must not allocate or wait.
std::vector<double> time_graph(at::Device device, int64_t repeats, const std::function<void()>& call);
bool has_graphs(at::Device device);  // true for a GPU in a build with CUDA

int64_t allocated_bytes(at::Device device);  // by tensors on a GPU now
void release_cache(at::Device device);       // returns unused memory to the GPU; does nothing on the CPU

}  // namespace prism::bench
