#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "prism/model/qwen2.h"

namespace prism::model {

struct GenerateOptions {
  int64_t tokens = 128;    // at most so many new ones
  double temperature = 1;  // logits are divided by it; 0 takes the likeliest token (the lowest id of equals)
  int64_t top_k = 0;       // only the k likeliest; 0: all
  double top_p = 1;        // then only the likeliest that together reach probability p
  uint64_t seed = 0;

  void check() const;  // throws prism::Error
};

// Continues `prompt` token by token and returns the new tokens, `stop` included where it came. `on_token` sees each
// token as it is drawn; returning false ends the generation. What exceeds the model's context, prompt and new tokens
// together, is a prism::Error. The same seed gives the same tokens on the same device.
std::vector<uint32_t> generate(const Qwen2& model, std::span<const uint32_t> prompt, const GenerateOptions& options,
                               std::optional<uint32_t> stop = {}, const std::function<bool(uint32_t)>& on_token = {});

}  // namespace prism::model
