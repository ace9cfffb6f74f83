// prism/cuda in a build without CUDA.

#include <stdexcept>

#include "prism/cuda/device.h"
#include "prism/cuda/matrix_norms.h"
#include "prism/cuda/steps.h"

namespace prism::cuda {

bool available(int /*device*/) { return false; }

bool is_capturing(void* /*stream*/) { return false; }

bool is_thin(const SpectralRule& /*rule*/, const MatrixStack& /*stack*/) { return false; }

namespace {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported
}

int spectral_step(const SpectralRule& /*rule*/, const StepScalars& /*scalars*/,
                  const std::vector<MatrixStack>& /*stacks*/, const Allocate& /*allocate*/, int /*device*/,
                  void* /*stream*/) {
  return kNotSupported;
}

int measure_parts(const SpectralRule& /*rule*/, const MatrixStack& /*parts*/, double* /*sums*/,
                  const Allocate& /*allocate*/, void* /*stream*/) {
  return kNotSupported;
}

int form_operands(const SpectralRule& /*rule*/, const MatrixStack& /*parts*/, const double* /*sums*/, void* /*T*/,
                  void* /*D*/, const Allocate& /*allocate*/, void* /*stream*/) {
  return kNotSupported;
}

int shape_operands(const SpectralRule& /*rule*/, const MatrixStack& /*stack*/, const double* /*sums*/,
                   const void* /*T*/, const void* /*D*/, const Allocate& /*allocate*/, int /*device*/,
                   void* /*stream*/) {
  return kNotSupported;
}

int elementwise_step(const ElementwiseRule& /*rule*/, const StepScalars& /*scalars*/,
                     const std::vector<Vector>& /*vectors*/, int /*device*/, void* /*stream*/) {
  return kNotSupported;
}

int measure_norms(const std::vector<MeasuredMatrix>& /*matrices*/, const float* /*M_divisor*/,
                  const Allocate& /*allocate*/, double* /*norms*/, int /*device*/, void* /*stream*/) {
  return kNotSupported;
}

const char* error_text(int /*error*/) { return "built without CUDA"; }

std::string device_name(int /*device*/) { return ""; }

ProductKernel product_kernel(int /*device*/) { return ProductKernel::None; }

void use_portable_products() {}

Graph::Graph(void* stream, const std::function<void()>& /*launches*/) : stream_(stream) {
  throw std::runtime_error("CUDA graphs: built without CUDA");
}
Graph::~Graph() = default;
void Graph::launch() const {}

}  // namespace prism::cuda
