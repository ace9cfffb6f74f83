#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "prism/train/step_graph.h"

namespace prism::train {
namespace {

void check_cuda(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, "train: CUDA: ", cudaGetErrorString(error)); }

// Returns one stream per device. All runs of the process share it, because cuBLAS keeps a workspace (63 MB on an H200)
// for every stream that it has seen.
c10::cuda::CUDAStream stream_of(at::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::scoped_lock lock(mutex);
  const auto index = device.has_index() ? device.index() : c10::cuda::current_device();
  const auto found = streams.find(index);
  if (found != streams.end()) return found->second;
  return streams.emplace(index, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index)).first->second;
}

// Runs everything on a stream from the pool, because the default stream cannot be captured.
class CudaSteps : public StepGraph {
 public:
  explicit CudaSteps(at::Device device) : stream_(stream_of(device)) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    for (auto& event : events_) check_cuda(cudaEventCreate(&event));
    check_cuda(cudaEventCreateWithFlags(&written_, cudaEventDisableTiming));
  }

  ~CudaSteps() override {
    for (auto* event : events_) cudaEventDestroy(event);
    cudaEventDestroy(written_);
  }

  void run(const std::function<void()>& prepare, const std::function<void()>& work, bool graph) override {
    check_cuda(cudaEventRecord(written_, c10::cuda::getCurrentCUDAStream(stream_.device_index())));
    check_cuda(cudaStreamWaitEvent(stream_, written_));
    const c10::cuda::CUDAStreamGuard guard(stream_);
    if (!warm_) check_cuda(cudaDeviceSynchronize());  // other streams may still be writing weights and state
    prepare();
    if (!graph || !warm_) {
      work();
    } else {
      if (!graph_) capture(work);
      graph_->replay();
    }
    warm_ = true;
  }

  void mark(Mark mark) override {
    // Inside a capture, only an external event is recorded by each replay.
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream_, &status));
    const unsigned flags = status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    check_cuda(cudaEventRecordWithFlags(events_[mark], stream_, flags));
  }

  void wait() override { check_cuda(cudaStreamSynchronize(stream_)); }

  bool wait_for(std::chrono::duration<double> limit) override {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      const auto status = cudaStreamQuery(stream_);
      if (status == cudaSuccess) return true;
      if (status != cudaErrorNotReady) check_cuda(status);
      if (std::chrono::steady_clock::now() - begin > limit) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  double milliseconds() const override {
    float result = 0;
    check_cuda(cudaEventElapsedTime(&result, events_[kBefore], events_[kAfter]));
    return result;
  }

  bool is_graph() const override { return graph_.has_value(); }

 private:
  void capture(const std::function<void()>& work) {
    wait();
    c10::cuda::CUDACachingAllocator::emptyCache();  // the graph allocates as much memory again as the first run
    graph_.emplace();
    // Threads of NCCL may ask for the state of events during the capture; they are not part of it.
    graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph_->capture_end();
      } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is more useful
      }
      graph_.reset();
      throw;
    }
    graph_->capture_end();
  }

  c10::cuda::CUDAStream stream_;
  std::array<cudaEvent_t, kMarks> events_{};
  cudaEvent_t written_ = nullptr;  // all that the caller's stream had to do before the step
  std::optional<at::cuda::CUDAGraph> graph_;
  bool warm_ = false;
};

}  // namespace

std::unique_ptr<StepGraph> StepGraph::make(at::Device device) {
  if (device.is_cuda()) return std::make_unique<CudaSteps>(device);
  return plain_steps(device);
}

}  // namespace prism::train
