#pragma once

#include <filesystem>

#include "prism/model/qwen2.h"

namespace prism::model {

// A safetensors file with every parameter under its name, in float32.
void save_weights(const Qwen2& model, const std::filesystem::path& file);

// Reads such a file (F32, BF16 or F16) into the model. A parameter that is missing, unknown or of another shape is
// named in a prism::Error, and the model stays as it was.
void load_weights(Qwen2& model, const std::filesystem::path& file);

}  // namespace prism::model
