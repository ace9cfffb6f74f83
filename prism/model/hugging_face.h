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
// folder: all of it or nothing. A folder that is already there must be empty.
void export_hugging_face(const Qwen2& model, const text::Tokenizer& tokenizer, const std::filesystem::path& folder,
                         ExportType type = ExportType::kFloat32);

// The model of a folder with config.json and either model.safetensors or model.safetensors.index.json and its shards:
// a Hugging Face folder, or a checkpoint of a run. Weights in F32, BF16 or F16 become float32.
Qwen2 load_model(const std::filesystem::path& folder, at::Device device = at::kCPU);

struct Imported {
  Qwen2 model;
  text::Tokenizer tokenizer;
};

// A Hugging Face folder: the model, and the tokenizer from tokenizer.json or vocab.json and merges.txt.
Imported import_hugging_face(const std::filesystem::path& folder, at::Device device = at::kCPU);

}  // namespace prism::model
