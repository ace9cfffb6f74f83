#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prism::model {

// The shape of a Qwen2 decoder. The number of query heads times head_dim may differ from the width.
struct ModelConfig {
  int64_t vocab = 0;  // rows of the embedding
  int64_t layers = 0;
  int64_t width = 0;     // of the residual stream
  int64_t heads = 0;     // of queries
  int64_t kv_heads = 0;  // of keys and values; each serves heads / kv_heads query heads
  int64_t head_dim = 0;
  int64_t mlp = 0;      // width inside the SwiGLU
  int64_t context = 0;  // the longest sequence
  bool tied = true;     // the output head is the embedding
  double rope_theta = 1e6;
  double rms_eps = 1e-6;

  // Throws prism::Error if a size is out of range or two sizes do not match.
  void check() const;

  int64_t parameters() const;         // number of all parameters; a tied head counts once
  int64_t matrix_parameters() const;  // number of parameters in hidden matrices

  bool operator==(const ModelConfig&) const = default;
};

// The spread of the initial weights.
enum class InitScale {
  Qwen2,  // N(0, 0.02²) for every matrix, as transformers initializes Qwen2
  Depth,  // the same, but N(0, 0.02² / (2 · layers)) for the two projections that add to the residual stream
};

// Returns the sizes of a named model; the caller sets `vocab`, which is 0. Throws prism::Error that lists the known
// names if `name` is not one of them.
ModelConfig preset(std::string_view name);
const std::vector<std::string>& preset_names();

}  // namespace prism::model
