#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace prism::model {

struct GenerateOptions {
  int64_t tokens = 128;    // maximum number of new tokens
  double temperature = 1;  // logits are divided by it; 0 takes the likeliest token (the lowest id of equals)
  int64_t top_k = 0;       // draw only from the k likeliest tokens; 0: from all
  double top_p = 1;        // then only from the likeliest tokens that together reach the probability p
  uint64_t seed = 0;

  void check() const;  // throws prism::Error
};

// Draws tokens; the same seed and logits give the same tokens everywhere.
class Sampler {
 public:
  explicit Sampler(const GenerateOptions& options);

  // Throws std::runtime_error if a logit is not finite.
  uint32_t draw(std::span<const float> logits);

 private:
  GenerateOptions options_;
  std::mt19937_64 generator_;
};

}  // namespace prism::model
