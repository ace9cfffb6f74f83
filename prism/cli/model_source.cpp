#include "prism/cli/model_source.h"

#include <fmt/format.h>

#include "prism/io/checkpoint.h"
#include "prism/io/error.h"
#include "prism/model/hugging_face.h"
#include "prism/train/run_folder.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;

OpenedModel open_checkpoint(const fs::path& checkpoint, const train::RunFolder& run, std::vector<std::string> skipped,
                            at::Device device) {
  auto tokenizer = run.tokenizer();
  auto model = model::load_model(checkpoint, device);
  if (tokenizer.size() > model.config().vocab) {
    throw Error(fmt::format("{}: has {} tokens, but the model's embedding has {} rows", run.tokenizer_file().string(),
                            tokenizer.size(), model.config().vocab));
  }
  return {std::move(model), std::move(tokenizer), checkpoint, std::move(skipped)};
}

OpenedModel open_run(const train::RunFolder& run, at::Device device) {
  const auto latest = io::latest_checkpoint(run.checkpoints());
  std::vector<std::string> skipped;
  for (const auto& checkpoint : latest.skipped)
    skipped.push_back(fmt::format("{}: {}", checkpoint.path.string(), checkpoint.reason));
  if (!latest.path) {
    throw Error(fmt::format("{}: expected a valid checkpoint, got {}", run.checkpoints().string(),
                            skipped.empty() ? "none" : skipped.front()));
  }
  return open_checkpoint(*latest.path, run, std::move(skipped), device);
}

}  // namespace

OpenedModel open_model(const fs::path& path, at::Device device) {
  fs::path folder = fs::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: {}; expected a run, a checkpoint or a Hugging Face folder", path.string(),
                            fs::exists(folder) ? "not a folder" : "does not exist"));
  }
  if (const train::RunFolder run{folder}; fs::exists(run.checkpoints())) return open_run(run, device);
  if (fs::exists(folder / io::kManifestName)) {
    io::verify_manifest(folder);
    return open_checkpoint(folder, {folder.parent_path().parent_path()}, {}, device);
  }
  if (const auto best = io::latest_checkpoint(folder); best.path) {  // the folder `best` of a run
    return open_checkpoint(*best.path, {folder.parent_path()}, {}, device);
  }
  if (!fs::exists(folder / "config.json")) {
    throw Error(
        fmt::format("{}: contains no checkpoints, manifest.json or config.json; expected a run, a checkpoint or "
                    "a Hugging Face folder",
                    path.string()));
  }
  auto [model, tokenizer] = model::import_hugging_face(folder, device);
  return {std::move(model), std::move(tokenizer), folder, {}};
}

}  // namespace prism::cli
