// prism/cuda in a build without CUDA.

#include <stdexcept>

#include "prism/cuda/device.h"
#include "prism/cuda/steps.h"

namespace prism::cuda {

bool available(int /*device*/) { return false; }

bool is_capturing(void* /*stream*/) { return false; }

namespace {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported
}

int spectral_step(const SpectralRule& /*rule*/, const StepScalars& /*scalars*/,
                  const std::vector<MatrixStack>& /*stacks*/, const Allocate& /*allocate*/, int /*device*/,
                  void* /*stream*/) {
  return kNotSupported;
}

int elementwise_step(const ElementwiseRule& /*rule*/, const StepScalars& /*scalars*/,
                     const std::vector<Vector>& /*vectors*/, int /*device*/, void* /*stream*/) {
  return kNotSupported;
}

const char* error_text(int /*error*/) { return "built without CUDA"; }

std::string device_name(int /*device*/) { return ""; }

Graph::Graph(void* stream, const std::function<void()>& /*launches*/) : stream_(stream) {
  throw std::runtime_error("CUDA graphs: built without CUDA");
}
Graph::~Graph() = default;
void Graph::launch() const {}

}  // namespace prism::cuda
