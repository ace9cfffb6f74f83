#include "prism/cuda/device.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "prism/cuda/steps.h"

namespace prism::cuda {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

}  // namespace

bool available(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 8;
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

std::string device_name(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

Graph::Graph(void* stream, const std::function<void()>& launches) : stream_(stream) {
  auto* handle = static_cast<cudaStream_t>(stream);
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal));
  try {
    launches();
  } catch (...) {
    cudaStreamEndCapture(handle, &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(handle, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error);
  executable_ = executable;
}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)); }

void Graph::launch() const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), static_cast<cudaStream_t>(stream_)));
}

}  // namespace prism::cuda
