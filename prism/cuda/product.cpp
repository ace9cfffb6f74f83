#include "prism/cuda/product.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

#include "prism/cuda/device.h"

namespace prism::cuda {
namespace {

std::atomic<bool> only_portable = false;

}  // namespace

cudaError_t takes_hopper(int device, bool* answer) {
  int major = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  *answer = major == 9 && !only_portable;
  return error;
}

ProductKernel product_kernel(int device) {
  bool hopper = false;
  if (!available(device) || takes_hopper(device, &hopper) != cudaSuccess) return ProductKernel::None;
  return hopper ? ProductKernel::Hopper : ProductKernel::Portable;
}

void use_portable_products() { only_portable = true; }

cudaError_t launch_products(const std::vector<Product>& products, const Pointers& pointers, const Rates& rates,
                            int device, cudaStream_t stream) {
  bool hopper = false;
  cudaError_t error = takes_hopper(device, &hopper);
  if (error != cudaSuccess) return error;
  // One kernel for Gram matrices, one for those with a float32 matrix, one for updates with each type of weights.
  std::map<std::tuple<bool, bool, Real>, std::vector<Product>> kinds;
  for (const auto& product : products) {
    const Epilogue& e = product.epilogue;
    kinds[{product.A_down == product.B_down && product.symmetric, e.reads_C || e.writes_C, e.weight}].push_back(
        product);
  }
  for (const auto& [kind, list] : kinds) {
    for (size_t first = 0; first < list.size() && error == cudaSuccess; first += kMaxProducts) {
      const int count = static_cast<int>(std::min<size_t>(kMaxProducts, list.size() - first));
      error = hopper ? launch_hopper(&list[first], count, pointers, rates, device, stream)
                     : launch_portable(&list[first], count, pointers, rates, stream);
    }
  }
  return error;
}

cudaError_t launch_sequence(const std::vector<std::vector<Product>>& phases, int* tickets, int device,
                            cudaStream_t stream, const int* runs) {
  bool hopper = false;
  cudaError_t error = takes_hopper(device, &hopper);
  if (error != cudaSuccess) return error;
  if (hopper) return launch_hopper_sequence(phases, tickets, device, stream, runs);
  for (const auto& products : phases) {
    if (error == cudaSuccess)
      error = launch_portable(products.data(), static_cast<int>(products.size()), {}, {}, stream, runs);
  }
  return error;
}

}  // namespace prism::cuda
