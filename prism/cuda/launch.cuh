#pragma once

// Programmatic dependent launch: a kernel may begin before the previous one of its stream has ended. Devices before compute
// capability 9.0 do not have it.

#include <cuda_runtime.h>

namespace prism::cuda {

// Waits until the previous kernel has ended. A kernel of CloseLaunches calls this in every thread before it reads or
// writes device memory.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel begin as soon as there is room.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchShape {
  int blocks, threads;
  size_t shared_bytes = 0;
};

// Launches kernels that call wait_for_previous, one after the other, until a launch fails.
class CloseLaunches {
 public:
  CloseLaunches(int device, cudaStream_t stream) : stream_(stream) {
    error_ = cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, device);
  }

  template <class Kernel, class Parameters>
  void then(const Kernel& kernel, const LaunchShape& shape, const Parameters& parameters) {
    if (error_ != cudaSuccess) return;
    cudaLaunchAttribute closely{};
    closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    closely.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream_;
    config.attrs = &closely;
    config.numAttrs = major_ == 9 ? 1 : 0;  // newer devices run the code for 8.0, which does not wait
    error_ = cudaLaunchKernelEx(&config, kernel, parameters);
  }

  cudaError_t error() const { return error_; }

 private:
  cudaStream_t stream_;
  int major_ = 0;
  cudaError_t error_;
};

}  // namespace prism::cuda
