#pragma once

#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "prism/prism.h"
#include "tests/close.h"

namespace prism::test {

using torch::Tensor;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

inline Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = torch::kFloat64) {
  torch::manual_seed(seed);
  return torch::randn(shape, torch::kFloat64).to(type);
}

// UVᵀ over the nonzero singular values.
inline Tensor polar_by_svd(const Tensor& X) {
  const auto [U, S, Vh] = torch::linalg_svd(X, /*full_matrices=*/false);
  return torch::matmul(U * S.gt(1e-12 * S.max()).to(S.scalar_type()), Vh);
}

inline Tensor parameter(const Tensor& value) { return value.clone().requires_grad_(true); }

// Sets gradients that depend only on the step and the name.
inline void set_gradients(const NamedTensors& parameters, int64_t step) {
  for (const auto& [name, tensor] : parameters) {
    const uint64_t seed = std::hash<std::string>()(name) % 1000 + static_cast<uint64_t>(step) * 1000;
    tensor.mutable_grad() = random(tensor.sizes(), seed, tensor.scalar_type());
  }
}

inline NamedTensors copy_of(const NamedTensors& parameters) {
  NamedTensors copies;
  for (const auto& [name, tensor] : parameters) copies.emplace_back(name, parameter(tensor.detach()));
  return copies;
}

inline std::vector<Tensor> values_of(const NamedTensors& parameters) {
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : parameters) values.push_back(tensor.detach().clone());
  return values;
}

inline void expect_equal_weights(const NamedTensors& actual, const NamedTensors& expected) {
  const std::map<std::string, Tensor> by_name(expected.begin(), expected.end());
  for (const auto& [name, tensor] : actual) EXPECT_TRUE(torch::equal(tensor, by_name.at(name))) << name;
}

inline void expect_finite(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters)
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name << "\n" << tensor;
}

// Returns a copy of every state tensor under its key.
inline std::map<std::string, Tensor> state_of(const Optimizer& optimizer) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : optimizer.snapshot().tensors) state[name] = tensor.clone();
  return state;
}

inline void expect_equal_state(const std::map<std::string, Tensor>& actual,
                               const std::map<std::string, Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : actual) {
    ASSERT_TRUE(expected.count(name)) << name;
    EXPECT_EQ(tensor.scalar_type(), expected.at(name).scalar_type()) << name;
    EXPECT_TRUE(torch::equal(tensor, expected.at(name))) << name;
  }
}

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace prism::test
