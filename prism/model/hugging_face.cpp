#include "prism/model/hugging_face.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <set>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/io/safetensors.h"
#include "prism/model/hugging_face_config.h"
#include "prism/model/weights.h"

namespace prism::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void write_json(const fs::path& path, const Json& object) { io::write_file_atomically(path, object.dump(2) + "\n"); }

Json tokenizer_config(const text::Tokenizer& tokenizer, const ModelConfig& config) {
  Json object = {{"tokenizer_class", "PreTrainedTokenizerFast"},  // uses tokenizer.json as it is
                 {"model_max_length", config.context},
                 {"clean_up_tokenization_spaces", false},
                 {"add_prefix_space", false}};
  if (tokenizer.end_of_text()) {
    object["eos_token"] = tokenizer.end_of_text_name();
    object["pad_token"] = tokenizer.end_of_text_name();
  }
  return object;
}

Json generation_config(const text::Tokenizer& tokenizer) {
  Json object = {{"_from_model_config", false}};
  if (const auto end = tokenizer.end_of_text()) {
    object["eos_token_id"] = *end;
    object["pad_token_id"] = *end;
  }
  return object;
}

// A temporary folder beside its final path; removed unless it is committed.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& target) : target_(fs::absolute(target).lexically_normal()) {
    if (!target_.has_filename()) target_ = target_.parent_path();
    if (fs::exists(fs::symlink_status(target_)) && !(fs::is_directory(target_) && fs::is_empty(target_))) {
      throw Error(fmt::format("{}: expected a new or empty folder", target.string()));
    }
    temporary_ = target_;
    temporary_ += fmt::format(".tmp-{}", ::getpid());
    io::make_folders(temporary_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(temporary_, ignored);
  }

  const fs::path& path() const { return temporary_; }

  void commit() {
    io::sync_folder(temporary_);
    io::move_path(temporary_, target_);  // replaces an empty folder
    committed_ = true;
    io::sync_folder(target_.parent_path());
  }

 private:
  fs::path target_, temporary_;
  bool committed_ = false;
};

// The files of model.safetensors.index.json: {"weight_map": {parameter: file}}.
std::vector<fs::path> shard_paths(const fs::path& index) {
  const nlohmann::json object = io::parse_json(io::read_file(index), index.string());
  const auto fail = [&](std::string_view what) { throw Error(fmt::format("{}: {}", index.string(), what)); };
  if (!object.is_object() || !object.contains("weight_map") || !object["weight_map"].is_object()) {
    fail("expected an object 'weight_map'");
  }
  std::set<std::string> names;
  for (const auto& [parameter, file] : object["weight_map"].items()) {
    if (!file.is_string()) fail(fmt::format("'weight_map.{}' must be the name of a file", parameter));
    const fs::path name = file.get<std::string>();
    if (name != name.filename()) fail(fmt::format("'{}' must be in the same folder", name.string()));
    names.insert(name.string());
  }
  std::vector<fs::path> paths;
  for (const auto& name : names) paths.push_back(index.parent_path() / name);
  return paths;
}

// The tokenizer with the end-of-text token that tokenizer_config.json names, if the tokenizer has it.
text::Tokenizer with_named_end(text::Tokenizer tokenizer, const fs::path& config) {
  if (!fs::exists(config)) return tokenizer;
  const auto object = io::parse_json(io::read_file(config), config.string());
  auto name = object.value("eos_token", nlohmann::json());
  if (name.is_object()) name = name.value("content", nlohmann::json());
  return name.is_string() && tokenizer.id(name.get<std::string>()) ? tokenizer.with_end_of_text(name) : tokenizer;
}

std::vector<fs::path> weight_paths(const fs::path& folder) {
  const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(single)) return {single};
  if (fs::exists(index)) return shard_paths(index);
  throw Error(fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", folder.string()));
}

}  // namespace

void export_hugging_face(const Qwen2& model, const text::Tokenizer& tokenizer, const fs::path& folder,
                         ExportType type) {
  const ModelConfig& config = model.config();
  if (tokenizer.size() > config.vocab) {
    throw Error(
        fmt::format("the tokenizer has {} tokens, the model's embedding {} rows", tokenizer.size(), config.vocab));
  }
  const bool half = type == ExportType::Bfloat16;
  NewFolder out(folder);
  save_weights(model, out.path() / "model.safetensors", half ? at::kBFloat16 : at::kFloat);
  write_json(out.path() / "config.json", config_object(config, half ? "bfloat16" : "float32", tokenizer.end_of_text()));
  write_json(out.path() / "generation_config.json", generation_config(tokenizer));
  write_json(out.path() / "tokenizer_config.json", tokenizer_config(tokenizer, config));
  tokenizer.save(out.path() / "tokenizer.json");
  out.commit();
}

Qwen2 load_model(const fs::path& folder, at::Device device) {
  const fs::path config_path = folder / "config.json";
  const ModelConfig config = from_hugging_face_config(io::read_file(config_path), config_path.string());
  const std::vector<fs::path> paths = weight_paths(folder);
  std::vector<io::SafetensorsFile> files;
  std::vector<io::TensorView> tensors;
  std::map<std::string, fs::path> owner;
  for (const fs::path& path : paths) {
    for (const auto& tensor : files.emplace_back(path).tensors()) {
      const auto [other, fresh] = owner.emplace(tensor.name, path);
      if (!fresh) {
        throw Error(
            fmt::format("{}: '{}' is in {} too", path.string(), tensor.name, other->second.filename().string()));
      }
      tensors.push_back(tensor);
    }
  }
  Qwen2 model = Qwen2::without_weights(config, device);
  assign_weights(model, tensors, paths.size() == 1 ? paths[0].string() : folder.string());
  return model;
}

Imported import_hugging_face(const fs::path& folder, at::Device device) {
  text::Tokenizer tokenizer = with_named_end(text::Tokenizer::load(folder), folder / "tokenizer_config.json");
  Qwen2 model = load_model(folder, device);
  if (tokenizer.size() > model.config().vocab) {
    throw Error(fmt::format("{}: the tokenizer has {} tokens, the model's embedding {} rows", folder.string(),
                            tokenizer.size(), model.config().vocab));
  }
  return {std::move(model), std::move(tokenizer)};
}

}  // namespace prism::model
