#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prism {

using at::Tensor;

// The type in which a state field is stored.
//   State    the `state_dtype` option: momenta and second moments
//   Compute  float32 (float64 for float64 weights), whatever the option: covariances and bases are useless in 16 bits
//   Counter  float32, one number per parameter: step counts, powers of two
enum class Storage { State, Compute, Counter };

// One field of an optimizer's state: its name, the shape of one parameter's part, and the value it starts from. Fields
// that `operands` advances, element by element or as one number, are kept beside the parts of a matrix that is cut over
// several processes; the others are kept whole by the process that shapes the matrix.
struct Field {
  std::string name;
  std::vector<int64_t> shape;
  Storage storage = Storage::State;
  double initial = 0;
  bool in_operands = false;
};

// The fields of a bucket, each stacked over its parameters: (B, shape…).
class State {
 public:
  void add(std::string name, Tensor stack) { fields_.emplace_back(std::move(name), std::move(stack)); }

  // The stack of that name; undefined if the options need no such field.
  Tensor operator[](std::string_view name) const {
    for (const auto& [key, stack] : fields_) {
      if (key == name) return stack;
    }
    return {};
  }

  auto begin() { return fields_.begin(); }
  auto end() { return fields_.end(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  size_t size() const { return fields_.size(); }

 private:
  std::vector<std::pair<std::string, Tensor>> fields_;
};

}  // namespace prism
