// For tests against other implementations. FOLDER is a Hugging Face folder, TOKENS a JSON file with rows of token ids.
//   model_tool create CONFIG TOKENIZER SEED OUT [bfloat16]   exports a fresh model of this config.json
//   model_tool convert FOLDER OUT [bfloat16]                 imports and exports
//   model_tool checkpoint FOLDER RUN STEP                    imports, and writes as a checkpoint of a run
//   model_tool logits FOLDER TOKENS OUT                      safetensors with "logits"
//   model_tool gradients FOLDER TOKENS OUT [recompute]       "loss", and the gradient of each parameter under its name
//   model_tool generate FOLDER TOKENS COUNT                  greedy continuation of the first row, as a JSON list
// Refused input gives exit status 2 and a message.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <nlohmann/json.hpp>

#include "prism/io/atomic_file.h"
#include "prism/io/checkpoint.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/safetensors.h"
#include "prism/model/generate.h"
#include "prism/model/hugging_face.h"
#include "prism/model/weights.h"

namespace {

using namespace prism::model;
using Arguments = std::vector<std::string>;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

at::Tensor read_tokens(const std::string& path) {
  const auto rows = nlohmann::json::parse(prism::io::read_file(path)).get<std::vector<std::vector<int64_t>>>();
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return at::tensor(flat).view({static_cast<int64_t>(rows.size()), -1});
}

void write(const std::string& path, const Named& named) {
  std::vector<at::Tensor> kept;
  std::vector<prism::io::TensorView> views;
  for (const auto& [name, tensor] : named) {
    const at::Tensor& t = kept.emplace_back(tensor.detach().contiguous());
    views.push_back({name, "F32", t.sizes().vec(), static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()});
  }
  prism::io::write_safetensors(path, views, {});
}

ExportType export_type(const Arguments& arguments, size_t at) {
  return arguments.size() > at && arguments[at] == "bfloat16" ? ExportType::Bfloat16 : ExportType::Float32;
}

void create(const Arguments& a) {
  const Qwen2 model(from_hugging_face_config(prism::io::read_file(a[1]), a[1]), std::stoull(a[3]));
  export_hugging_face(model, prism::text::Tokenizer::load(a[2]), a[4], export_type(a, 5));
}

void convert(const Arguments& a) {
  const Imported imported = import_hugging_face(a[1]);
  export_hugging_face(imported.model, imported.tokenizer, a[2], export_type(a, 3));
}

void checkpoint(const Arguments& a) {
  const Imported imported = import_hugging_face(a[1]);
  const std::filesystem::path run = a[2];
  prism::io::CheckpointWriter writer(run / "checkpoints", std::stoll(a[3]));
  save_weights(imported.model, writer.path() / "model.safetensors");
  prism::io::write_file_atomically(writer.path() / "config.json", hugging_face_config(imported.model.config()));
  writer.commit();
  imported.tokenizer.save(run / "tokenizer.json");
}

void gradients(const Arguments& a) {
  Qwen2 model = load_model(a[1]);
  model.set_recompute(a.size() > 4);
  const at::Tensor loss = model.loss(read_tokens(a[2]));
  loss.backward();
  Named named = {{"loss", loss}};
  for (const auto& [name, parameter] : model.named_parameters()) {
    named.emplace_back(name, parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  }
  write(a[3], named);
}

void continue_greedily(const Arguments& a) {
  const auto rows = nlohmann::json::parse(prism::io::read_file(a[2])).get<std::vector<std::vector<uint32_t>>>();
  const Qwen2 model = load_model(a[1]);
  const auto ids = generate(model, rows[0], {.tokens = std::stoll(a[3]), .temperature = 0});
  fmt::print("{}\n", nlohmann::json(ids).dump());
}

void run(const Arguments& a) {
  const std::string command = a.empty() ? "" : a[0];
  if (command == "create" && a.size() >= 5) {
    create(a);
  } else if (command == "convert" && a.size() >= 3) {
    convert(a);
  } else if (command == "checkpoint" && a.size() == 4) {
    checkpoint(a);
  } else if (command == "logits" && a.size() == 4) {
    write(a[3], {{"logits", load_model(a[1]).forward(read_tokens(a[2]))}});
  } else if (command == "gradients" && a.size() >= 4) {
    gradients(a);
  } else if (command == "generate" && a.size() == 4) {
    continue_greedily(a);
  } else {
    throw prism::Error("expected: model_tool create | convert | checkpoint | logits | gradients | generate …");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const prism::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
