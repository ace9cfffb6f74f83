#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "prism/model/qwen2.h"
#include "prism/model/sampling.h"

namespace prism::model {

// Continues `prompt`, which has at least one token, and returns the new tokens, including `stop` if it was drawn. Calls
// `on_token` for each token as soon as it is drawn; returning false ends the generation. The model sees no more than
// its context: when the context is full, generation continues from its last half.
std::vector<uint32_t> generate(const Qwen2& model, std::span<const uint32_t> prompt, const GenerateOptions& options,
                               std::optional<uint32_t> stop = {}, const std::function<bool(uint32_t)>& on_token = {});

}  // namespace prism::model
