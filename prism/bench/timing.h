#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace prism::bench {

// "NVIDIA H200", or the processor's name with its threads.
std::string device_name(at::Device device);

// Work on a GPU goes to a stream of its own while this lives, so that it can be captured; the CPU has nothing to
// change.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Milliseconds of each call. On a GPU by events on the current stream, without waiting for one call before the next is
// launched.
std::vector<double> time_calls(at::Device device, int64_t repeats, const std::function<void()>& call);

// The same of a CUDA graph of the call, which must not allocate and not wait.
std::vector<double> time_graph(at::Device device, int64_t repeats, const std::function<void()>& call);
bool has_graphs(at::Device device);  // a GPU, and a build with CUDA

int64_t allocated_bytes(at::Device device);  // that tensors take on a GPU now
void release_cache(at::Device device);       // gives memory that no tensor holds back to the device; nothing on the CPU

}  // namespace prism::bench
