#include <fmt/format.h>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/model_source.h"
#include "prism/cli/options.h"
#include "prism/model/hugging_face.h"

namespace prism::cli {
namespace {

using model::ExportType;

struct ExportOptions {
  std::string source, out;
  ExportType type = ExportType::Float32;
};

int export_model(const ExportOptions& options) {
  const OpenedModel opened = open_model(options.source);
  for (const auto& text : opened.skipped) fmt::print(stderr, "prism export: skipped {}\n", text);
  model::export_hugging_face(opened.model, opened.tokenizer, options.out, options.type);
  fmt::print("{}: {} parameters in {}, from {}\n", options.out, grouped(opened.model.config().parameters()),
             options.type == ExportType::Float32 ? "float32" : "bfloat16", opened.from.string());
  return 0;
}

void add_options(CLI::App& app, ExportOptions& options) {
  add_path(app, "source", options.source, "Run, checkpoint or Hugging Face folder")->required();
  add_path(app, "--out", options.out, "New folder for the model")->required();
  add_choice<ExportType>(app, "--dtype", options.type,
                         {{"float32", ExportType::Float32}, {"bfloat16", ExportType::Bfloat16}}, "Type of the weights");
}

}  // namespace

Command export_command() {
  return make_command("export", "Write a trained model as a Hugging Face folder",
                      "prism export runs/a --out hf/ --dtype bfloat16\n"
                      "python -c \"from transformers import AutoModel as M; M.from_pretrained('hf')\"",
                      add_options, export_model);
}

}  // namespace prism::cli
