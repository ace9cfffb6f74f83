#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "prism/io/safetensors.h"
#include "prism/model/qwen2.h"

namespace prism::model {

// Writes a safetensors file with every parameter under its name, in float32 or bfloat16.
void save_weights(const Qwen2& model, const std::filesystem::path& file, at::ScalarType type = at::kFloat);

// Reads such a file (F32, BF16 or F16) into the model. If a parameter is missing, unknown or of another shape, throws
// prism::Error that names it, and leaves the model unchanged.
void load_weights(Qwen2& model, const std::filesystem::path& file);

// The same from tensors that may come from several files; `where` begins the messages.
void assign_weights(Qwen2& model, std::span<const io::TensorView> tensors, std::string_view where);

}  // namespace prism::model
