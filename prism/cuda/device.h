#pragma once

// What measurements need of a device. Torch-free, as launch.h is; in a build without CUDA names are empty and there are
// no graphs.

#include <functional>
#include <string>

namespace prism::cuda {

std::string device_name(int device);  // "NVIDIA H200"

// Launches that were recorded once, to be launched again as one piece. They must not allocate and not wait.
class Graph {
 public:
  // Records what `launches` puts on the stream, which is not the default one; nothing runs yet.
  Graph(void* stream, const std::function<void()>& launches);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const;  // on the stream it was recorded from

 private:
  void* stream_;
  void* executable_ = nullptr;
};

}  // namespace prism::cuda
