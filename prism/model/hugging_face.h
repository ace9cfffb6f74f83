#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "prism/model/qwen2.h"
#include "prism/text/tokenizer.h"

namespace prism::model {

// The config.json of a Hugging Face Qwen2ForCausalLM of this shape, with the keys of old and new transformers.
std::string hugging_face_config(const ModelConfig& config);

// Parses a config.json. Throws prism::Error that names the key if the model is not supported (another architecture,
// sliding windows, scaled RoPE …); `where` begins the message.
ModelConfig from_hugging_face_config(std::string_view text, std::string_view where);

enum class ExportType { Float32, Bfloat16 };

// Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json into a new
// folder: all of them or nothing. If the folder exists, it must be empty.
void export_hugging_face(const Qwen2& model, const text::Tokenizer& tokenizer, const std::filesystem::path& folder,
                         ExportType type = ExportType::Float32);

// Loads the model of a Hugging Face folder or of a checkpoint: config.json and either model.safetensors or
// model.safetensors.index.json with its shards. Weights in F32, BF16 or F16 become float32.
Qwen2 load_model(const std::filesystem::path& folder, at::Device device = at::kCPU);

struct Imported {
  Qwen2 model;
  text::Tokenizer tokenizer;
};

// Loads a Hugging Face folder: the model, and the tokenizer from tokenizer.json or from vocab.json and merges.txt.
Imported import_hugging_face(const std::filesystem::path& folder, at::Device device = at::kCPU);

}  // namespace prism::model
