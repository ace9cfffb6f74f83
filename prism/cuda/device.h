#pragma once

// Device names, kernels and graphs, for measurements. Free of torch headers, like steps.h. In a build without CUDA, names are
// empty and creating a graph throws.

#include <functional>
#include <string>

namespace prism::cuda {

std::string device_name(int device);  // "NVIDIA H200"

// The kernel that multiplies matrices on a device: none if torch's operations make the step, the one for compute
// capability 9.0, or the one for all others from 8.0 on.
enum class ProductKernel { None, Portable, Hopper };
ProductKernel product_kernel(int device);

// Makes every device take the portable kernel from now on, to measure it on a device that has a faster one.
void use_portable_products();

// Launches that are recorded once and replayed as one. They must neither allocate nor wait.
class Graph {
 public:
  // Records what `launches` puts on the stream, which must not be the default one. Nothing runs yet.
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
