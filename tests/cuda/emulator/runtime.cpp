// The functions of CUDA's runtime that the product kernels and their tests call, and the other kernels, which are not
// emulated.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "prism/cuda/device.h"
#include "prism/cuda/product.h"
#include "tests/cuda/emulator/tensor_map.h"

namespace {

constexpr int kProcessors = 4;  // two clusters, so that tiles of one wait for the other

CUresult encode_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t /*rank*/, void* data,
                    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                    const cuuint32_t* /*steps*/, CUtensorMapInterleave /*interleave*/, CUtensorMapSwizzle swizzle,
                    CUtensorMapL2promotion /*promotion*/, CUtensorMapFloatOOBfill /*fill*/) {
  const int element = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  prism::cuda::emulator::TensorMap result{
      .data = static_cast<uint8_t*>(data),
      .sizes = {},
      .strides = {static_cast<int64_t>(strides[0]), static_cast<int64_t>(strides[1])},
      .element = element,
      .box_columns = static_cast<int>(box[0]),
      .box_rows = static_cast<int>(box[1]),
      .swizzle = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                        : 0};
  for (int i = 0; i < 3; ++i) result.sizes[i] = static_cast<int64_t>(sizes[i]);
  memcpy(map, &result, sizeof(result));
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* /*symbol*/, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&encode_map);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  constexpr size_t kAlignment = 256;
  *data = aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind /*kind*/) {
  if (bytes > 0) memcpy(target, source, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "of the emulator"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : kProcessors;
  return cudaSuccess;
}

namespace prism::cuda {

bool available(int /*device*/) { return true; }
cudaError_t launch_portable(const Product* /*products*/, int /*count*/, const Pointers& /*pointers*/,
                            const Rates& /*rates*/, cudaStream_t /*stream*/, const int* /*runs*/) {
  return cudaErrorNotSupported;
}

}  // namespace prism::cuda
