#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prism::bench {

using Shape = std::vector<int64_t>;

// The shapes of a model's parameters.
struct ShapeSet {
  std::string name;
  std::vector<Shape> matrices;  // hidden matrices
  std::vector<Shape> rest;      // embedding, norms, biases; empty if the set is not a model

  int64_t elements() const;  // of the matrices
};

// Returns the shapes of a preset of prism/model with a vocabulary of 16,384, or
//   7b       those of Qwen2-7B, with its vocabulary
//   wide     8192×28672 and its transpose
//   experts  256 of 1024×2048
//   odd      all m×n with m and n of 1, 7, 129, 5000
//   lora     2000 of 16×4096
//   WxL      the hidden matrices of L layers of width W, with the proportions of 22m and 1b: 512x8 has those of 22m
// Throws prism::Error for any other name.
ShapeSet shape_set(const std::string& name);
const std::vector<std::string>& shape_set_names();  // without those of the form WxL

inline constexpr int64_t kVocab = 16384;

}  // namespace prism::bench
