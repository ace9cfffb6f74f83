#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prism/dist/communicator.h"
#include "prism/optim/mixed.h"
#include "prism/train/run_data.h"

namespace prism::train {

// Measures MatrixNorms around the optimizer's step, on the device. `before` and `after` may be captured in a graph;
// only `read` waits for the device. O exists only inside the kernels, so it is computed from the weights,
//   ‖(1 − lr·λ)·W_before − W_after‖ / (lr·scale),
// which needs a copy of the hidden matrices during the step. With the kernels of prism/cuda the norms read or write each
// matrix 6 times in total, with ATen's operators 13 times.
class NormMeter {
 public:
  // Keeps references. With `owned`, other processes step the matrices that this optimizer does not.
  NormMeter(const Mixed& optimizer, at::Device device, dist::Communicator& processes, bool owned);
  NormMeter(const NormMeter&) = delete;
  NormMeter& operator=(const NormMeter&) = delete;

  int64_t size() const;  // of the tensor that `after` returns

  void set_rate(double lr);  // the rate of the hidden matrices; call it before each step
  void before();             // call it before the optimizer's step
  Tensor after();            // call it after the optimizer's step; returns float64 norms for `read`
  std::map<std::string, MatrixNorms> read(const Tensor& values) const;

 private:
  enum Quantity { kG, kO, kW, kM, kD };  // rows of the tensor; the last two only if there is momentum
  struct Type {
    std::string name;
    double scale;  // of the update
  };
  std::vector<Tensor> ordered(const std::vector<Tensor>& of_group) const;
  std::vector<Tensor> momenta() const;
  Tensor momentum_divisor() const;
  Tensor norms_here();
  std::optional<Tensor> norms_by_kernels(const std::vector<Tensor>& W, const std::vector<Tensor>& G) const;

  const Mixed& optimizer_;
  dist::Communicator& processes_;
  const bool owned_;
  const bool has_momentum_;
  std::vector<Type> types_;
  std::vector<size_t> places_;   // indices of the matrices stepped here within their group, ordered by type
  std::vector<size_t> columns_;  // their indices among all matrices, ordered by type
  Tensor members_;               // (types, all matrices): 1 if the matrix is of the type, on the device
  Tensor keep_;                  // 1 − lr·λ, on the device
  double lr_ = 0;
  std::vector<Tensor> decayed_;  // (1 − lr·λ)·W_before, between `before` and `after`
};

}  // namespace prism::train
