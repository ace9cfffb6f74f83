#include "prism/train/inspection.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_svdvals.h>
#include <fmt/format.h>

#include <cstring>

#include "prism/data/corpus.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/manifest.h"
#include "prism/io/safetensors.h"
#include "prism/model/hugging_face.h"
#include "prism/model/parameters.h"
#include "prism/optim/mixed.h"
#include "prism/text/tokenizer.h"
#include "prism/train/config.h"
#include "prism/train/metrics.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

std::vector<double> singular_values(const io::TensorView* view, const std::vector<int64_t>& shape) {
  if (view == nullptr || view->dtype != io::kFloat32 || view->shape != shape) return {};
  std::vector<float> copy(view->bytes / sizeof(float));  // the file's bytes need not be aligned
  std::memcpy(copy.data(), view->data, view->bytes);
  const auto values = at::linalg_svdvals(at::from_blob(copy.data(), shape, at::kFloat).to(at::kDouble)).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

// Returns the first sequences of the text, at most as many as one training pass takes.
at::Tensor first_batch(const io::Config& config, const text::Tokenizer& tokenizer,
                       const std::vector<std::string>& paths) {
  const int64_t context = config.integer("train.context"), sequence = context + 1;
  const auto wanted =
      static_cast<size_t>(config.integer("train.batch") / config.integer("train.accumulate") * sequence);
  const data::Corpus corpus(paths);
  data::Documents documents(corpus);
  std::vector<uint32_t> tokens;
  for (data::Piece piece; tokens.size() < wanted && documents.next(piece);) {
    tokenizer.encode(piece.text, tokens, text::SpecialTokens::Text);
    if (piece.last && tokenizer.end_of_text()) tokens.push_back(*tokenizer.end_of_text());
  }
  const auto rows = static_cast<int64_t>(std::min(tokens.size(), wanted)) / sequence;
  if (rows == 0)
    throw Error(fmt::format("--data: expected at least {} tokens of text, got {}", sequence, tokens.size()));
  std::vector<int64_t> ids(tokens.begin(), tokens.begin() + rows * sequence);
  return at::from_blob(ids.data(), {rows, sequence}, at::kLong).clone();
}

}  // namespace

std::vector<CheckpointMatrix> checkpoint_spectra(const fs::path& checkpoint) {
  const io::SafetensorsFile weights(checkpoint / "model.safetensors"), state(checkpoint / "optimizer.safetensors");
  const auto file = checkpoint / "config.json";
  const auto config = model::from_hugging_face_config(io::read_file(file), file.string());
  std::vector<CheckpointMatrix> matrices;
  for (const auto& parameter : model::parameter_shapes(config)) {
    if (!parameter.hidden_matrix) continue;
    matrices.push_back({parameter.name, parameter.shape, singular_values(weights.find(parameter.name), parameter.shape),
                        singular_values(state.find("state." + parameter.name + ".momentum"), parameter.shape)});
  }
  return matrices;
}

std::vector<SpectraLine> batch_spectra(const RunFolder& run, const fs::path& checkpoint,
                                       const std::vector<std::string>& text) {
  const auto config = run.config();
  if (!config) throw Error(fmt::format("{}: expected a run folder with config.toml, got none", run.path.string()));
  const auto batch = first_batch(*config, run.tokenizer(), text);
  const auto model = model::load_model(checkpoint);
  const auto pair = optimizer_options(*config);
  Mixed optimizer(model.named_parameters(), *pair.matrices, *pair.rest);
  optimizer.load_safetensors(checkpoint / "optimizer.safetensors");
  model.loss(batch).backward();
  optimizer.step();
  return spectra_lines(io::verify_manifest(checkpoint).step + 1, optimizer.spectra());
}

}  // namespace prism::train
