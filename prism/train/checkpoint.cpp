#include "prism/train/checkpoint.h"

#include <fmt/format.h>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/model/hugging_face.h"
#include "prism/model/weights.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFolder = "checkpoints";
constexpr const char* kBestFolder = "best";

json to_json(const RunState& state) {
  return {{"step", state.step},
          {"tokens", state.tokens},
          {"seconds", state.seconds},
          {"skipped", state.skipped},
          {"skipped_in_row", state.skipped_in_row},
          {"batches", state.batches},
          {"initial_weights", state.initial_weights},
          {"data", state.data}};
}

RunState state_from_json(const json& object, const std::string& where) {
  try {
    RunState state;
    object.at("step").get_to(state.step);
    object.at("tokens").get_to(state.tokens);
    object.at("seconds").get_to(state.seconds);
    object.at("skipped").get_to(state.skipped);
    object.at("skipped_in_row").get_to(state.skipped_in_row);
    object.at("batches").get_to(state.batches);
    object.at("initial_weights").get_to(state.initial_weights);
    object.at("data").get_to(state.data);
    return state;
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: not the state of a run: {}", where, error.what()));
  }
}

void write_model(const io::CheckpointWriter& writer, const Trainer& trainer, const RunState& state) {
  model::save_weights(trainer.model(), writer.path() / "model.safetensors");
  io::write_file_atomically(writer.path() / "config.json", model::hugging_face_config(trainer.model().config()));
  io::write_file_atomically(writer.path() / "state.json", to_json(state).dump(2) + "\n");
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const Trainer& trainer, const RunState& state, int64_t keep) {
  io::CheckpointWriter writer(run / kFolder, state.step);
  write_model(writer, trainer, state);
  trainer.optimizer().save_safetensors(writer.path() / "optimizer.safetensors");
  const auto path = writer.commit();
  io::prune_checkpoints(run / kFolder, keep);
  return path;
}

void save_best(const fs::path& run, const Trainer& trainer, const RunState& state) {
  io::CheckpointWriter writer(run / kBestFolder, state.step);
  write_model(writer, trainer, state);
  writer.commit();
  // One of a later step is from before the run was interrupted.
  for (const auto& entry : fs::directory_iterator(run / kBestFolder)) {
    if (entry.path().filename() > io::checkpoint_name(state.step)) fs::remove_all(entry.path());
  }
  io::prune_checkpoints(run / kBestFolder, 1);
}

Resumed load_checkpoint(const fs::path& run, Trainer& trainer) {
  auto latest = io::latest_checkpoint(run / kFolder);
  if (!latest.path) return {{}, std::move(latest.skipped)};
  const auto file = *latest.path / "state.json";
  const auto state = state_from_json(io::parse_json(io::read_file(file), file.string()), file.string());
  model::load_weights(trainer.model(), *latest.path / "model.safetensors");
  trainer.optimizer().load_safetensors(*latest.path / "optimizer.safetensors");
  return {state, std::move(latest.skipped)};
}

}  // namespace prism::train
