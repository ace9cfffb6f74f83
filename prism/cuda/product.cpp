#include "prism/cuda/product.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace prism::cuda {

cudaError_t launch_products(const std::vector<Product>& products, const Pointers& pointers, const Rates& rates,
                            int device, cudaStream_t stream) {
  int major = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  // One kernel for each layout of the operands and each type of weights.
  std::map<std::tuple<bool, bool, Real>, std::vector<Product>> kinds;
  for (const auto& product : products)
    kinds[{product.A_down, product.B_down, product.epilogue.weight}].push_back(product);
  for (const auto& [kind, list] : kinds) {
    for (size_t first = 0; first < list.size() && error == cudaSuccess; first += kMaxProducts) {
      const int count = static_cast<int>(std::min<size_t>(kMaxProducts, list.size() - first));
      error = major == 9 ? launch_hopper(&list[first], count, pointers, rates, device, stream)
                         : launch_portable(&list[first], count, pointers, rates, stream);
    }
  }
  return error;
}

}  // namespace prism::cuda
