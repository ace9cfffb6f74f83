#pragma once

#include <map>
#include <string>
#include <vector>

#include "prism/optim/mixed.h"
#include "prism/train/run_data.h"

namespace prism::train {

// Measures MatrixNorms around the optimizer's step, on the device: no call but `read` waits, and all but `set_rate` may be
// part of a graph. O exists only inside the kernels, so it is measured from the weights,
//   ‖(1 − lr·λ)·W_before − W_after‖ / (lr·scale),
// which takes a copy of the hidden matrices during the step. In all, the norms read or write each matrix 13 times.
class NormMeter {
 public:
  explicit NormMeter(const Mixed& optimizer);  // which stays where it is
  NormMeter(const NormMeter&) = delete;
  NormMeter& operator=(const NormMeter&) = delete;

  int64_t size() const;  // of the tensor that `after` gives

  void set_rate(double lr);  // of the hidden matrices, before each step
  void before();             // the optimizer's step
  Tensor after();            // float64 norms, for `read`
  std::map<std::string, MatrixNorms> read(const Tensor& values) const;

 private:
  enum Quantity { kG, kO, kW, kM, kD };  // rows of the tensor; the last two with momentum only
  struct Type {
    std::string name;
    double scale;  // of the update
  };
  std::vector<Tensor> ordered(const std::vector<Tensor>& of_group) const;
  std::vector<Tensor> momenta() const;

  const Mixed& optimizer_;
  const bool has_momentum_;
  std::vector<Type> types_;
  std::vector<size_t> places_;  // of the matrices within their group, type after type
  Tensor members_;              // (types, matrices): 1 where the matrix is of the type, on the device
  Tensor keep_;                 // 1 − lr·λ, on the device
  double lr_ = 0;
  std::vector<Tensor> decayed_;  // (1 − lr·λ)·W_before, until `after`
};

}  // namespace prism::train
