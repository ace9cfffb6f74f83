#include "prism/train/checkpoint.h"

#include "prism/io/json_fields.h"
#include "prism/model/hugging_face.h"
#include "prism/model/weights.h"
#include "prism/train/processes.h"
#include "prism/train/run_fields.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

void write_model(const io::CheckpointWriter& writer, const Trainer& trainer, const RunState& state) {
  model::save_weights(trainer.model(), writer.path() / "model.safetensors");
  io::write_file_atomically(writer.path() / "config.json", model::hugging_face_config(trainer.model().config()));
  io::write_json(state, writer.path() / "state.json");
}

}  // namespace

fs::path save_checkpoint(const RunFolder& run, const Trainer& trainer, const Snapshot& optimizer, const RunState& state,
                         int64_t keep) {
  io::CheckpointWriter writer(run.checkpoints(), state.step);
  write_model(writer, trainer, state);
  write_safetensors(optimizer, writer.path() / "optimizer.safetensors");
  const auto path = writer.commit();
  io::prune_checkpoints(run.checkpoints(), keep);
  return path;
}

void save_best(const RunFolder& run, const Trainer& trainer, const RunState& state) {
  io::CheckpointWriter writer(run.best(), state.step);
  write_model(writer, trainer, state);
  writer.commit();
  // A best of a later step was saved before the run was interrupted.
  for (const auto& entry : fs::directory_iterator(run.best())) {
    if (entry.path().filename() > io::checkpoint_name(state.step)) fs::remove_all(entry.path());
  }
  io::prune_checkpoints(run.best(), 1);
}

Resumed load_checkpoint(const RunFolder& run, Trainer& trainer) {
  auto latest = io::latest_checkpoint(run.checkpoints());
  if (!latest.path) return {{}, std::move(latest.skipped)};
  const auto state = io::read_json<RunState>(*latest.path / "state.json");
  model::load_weights(trainer.model(), *latest.path / "model.safetensors");
  auto optimizer = read_safetensors(*latest.path / "optimizer.safetensors");
  if (trainer.is_owned())
    optimizer = part_of_state(trainer.processes(), std::move(optimizer), trainer.optimizer(), trainer.parts());
  trainer.optimizer().restore(optimizer);
  return {state, std::move(latest.skipped)};
}

}  // namespace prism::train
