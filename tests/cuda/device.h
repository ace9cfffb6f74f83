#pragma once

// Device memory for tests without torch, so that compute-sanitizer sees only our kernels.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace prism::cuda::test {

#define ASSERT_CUDA(call) ASSERT_EQ(static_cast<int>(call), 0) << cudaGetErrorString(cudaGetLastError())

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(size_);
    EXPECT_EQ(cudaMemcpy(result.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

inline bool is_hopper() {
  int major = 0;
  return has_device() && cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

}  // namespace prism::cuda::test
