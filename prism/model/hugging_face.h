#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "prism/model/qwen2.h"
#include "prism/text/tokenizer.h"

namespace prism::model {

// The config.json of a Hugging Face Qwen2ForCausalLM of this shape, in the spellings of old and new transformers.
std::string hugging_face_config(const ModelConfig& config);

// Reads one. What the model cannot do (another architecture, sliding windows, scaled RoPE …) is a prism::Error that
// names the key; `where` begins the message.
ModelConfig from_hugging_face_config(std::string_view json, std::string_view where);

enum class ExportType { kFloat32, kBfloat16 };

// Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json into a new
// folder: all of it or nothing. A folder that exists is refused unless it is empty.
void export_hugging_face(const Qwen2& model, const text::Tokenizer& tokenizer, const std::filesystem::path& folder,
                         ExportType type = ExportType::kFloat32);

struct Imported {
  Qwen2 model;
  text::Tokenizer tokenizer;
};

// Reads a folder with config.json, tokenizer and either model.safetensors or model.safetensors.index.json with its
// shards. Weights in F32, BF16 or F16 become float32.
Imported import_hugging_face(const std::filesystem::path& folder, at::Device device = at::kCPU);

}  // namespace prism::model
