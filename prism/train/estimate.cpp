#include "prism/train/estimate.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "prism/model/parameters.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/stepper.h"
#include "prism/train/time_left.h"
#include "prism/train/trainer.h"

namespace prism::train {
namespace {

constexpr double kFloat = 4;          // bytes
constexpr double kProgram = 250e6;    // bytes of the program and its libraries, on the CPU
constexpr double kDiskSpeed = 400e6;  // bytes/s, approximate speed of hashing and writing checkpoints
constexpr int64_t kProbeLayers = 2;
constexpr int64_t kProbeWidth = 640;   // on the CPU, where a step of wider layers takes too long
constexpr double kProbeWork = 1.5e10;  // operations of a measured step on the CPU: a fraction of a second
constexpr double kLongProbe = 0.7;     // seconds; a longer step is not repeated

// The floating-point operations of a step on `tokens` tokens in sequences of `context`: two for each weight and token
// in the forward pass, twice that in the backward pass, and the two products of causal attention.
double step_work(const model::ModelConfig& model, double tokens, double context) {
  const double weights = static_cast<double>(model.matrix_parameters() + model.vocab * model.width);
  const double attention = static_cast<double>(model.layers * model.heads * model.head_dim) * context;
  return 6 * tokens * (weights + attention);
}

// The bytes of the activations that the forward pass keeps for the backward pass, plus the largest temporary.
double activation_bytes(const io::Config& config, const model::ModelConfig& model, at::Device device,
                        int64_t processes) {
  const auto passes = std::max(config.integer("train.accumulate"), processes);
  const int64_t sequences = config.integer("train.batch") / passes;
  const auto tokens = static_cast<double>(sequences * config.integer("train.context"));
  const double product = device.is_cpu() ? 4 : 2;  // bytes of a number in float32 or bfloat16
  const auto width = static_cast<double>(model.width), mlp = static_cast<double>(model.mlp),
             heads = static_cast<double>((2 * model.heads + 2 * model.kv_heads) * model.head_dim);
  const double layer = 2 * kFloat * width + product * (2 * width + heads + 2 * mlp);
  const double kept = config.boolean("model.recompute") ? 2 * kFloat * width : layer;
  const double now = layer + product * (4 * mlp + 4 * width);  // in the layer being computed
  return tokens * (kept * static_cast<double>(model.layers) + now) +
         product * static_cast<double>(model.vocab * model.width);
}

struct Probe {
  double seconds_per_flop = 0;                    // of the forward and backward passes
  double optimizer_seconds = 0, state_bytes = 0;  // extrapolated to the run's model
};

// Returns the model with at most two layers, on the CPU narrower ones of the same proportions.
model::ModelConfig probe_model(const model::ModelConfig& model, at::Device device) {
  auto part = model;
  part.layers = std::min(model.layers, kProbeLayers);
  while (device.is_cpu() && part.width > kProbeWidth) {
    part.width /= 2;
    part.mlp = std::max<int64_t>(part.mlp / 2, 1);
    part.kv_heads = std::max<int64_t>(part.kv_heads / 2, 1);
    part.heads = part.kv_heads * (model.heads / model.kv_heads);
  }
  return part;
}

// The floating-point operations of a spectral method on the hidden matrices, up to a factor: the sum of m·n·min(m, n).
double optimizer_work(const model::ModelConfig& model) {
  double work = 0;
  for (const auto& p : model::parameter_shapes(model)) {
    if (!p.hidden_matrix) continue;
    const auto m = static_cast<double>(p.shape[0]), n = static_cast<double>(p.shape[1]);
    work += m * n * std::min(m, n);
  }
  return work;
}

// Measures steps of the smaller model on fewer tokens.
Probe probe_step(io::Config config, const model::ModelConfig& model, at::Device device) {
  const auto part = probe_model(model, device);
  const auto context = config.integer("train.context");
  auto tokens = context, sequences = config.integer("train.batch") / config.integer("train.accumulate");
  if (device.is_cpu()) {
    const double affordable = kProbeWork / step_work(part, 1, static_cast<double>(context));
    tokens = std::clamp<int64_t>(static_cast<int64_t>(affordable), 1, context);
    sequences = std::clamp<int64_t>(static_cast<int64_t>(affordable) / context, 1, sequences);
  }
  config.assign("train.context", tokens, "estimate");
  config.assign("train.batch", sequences, "estimate");
  config.assign("train.accumulate", 1, "estimate");
  config.assign("train.exact_reduction", false, "estimate");
  Stepper stepper(config, {part, /*seed=*/1, device});
  const std::vector<int64_t> batch(static_cast<size_t>(sequences * (tokens + 1)), 0);
  StepRecord record;
  // The first step allocates; on a GPU the second captures the graph that the third replays.
  for (int i = 0; i < (device.is_cpu() ? 2 : 3); ++i) {
    stepper.launch(batch, /*factor=*/0);
    record = stepper.finish();
    if (device.is_cpu() && record.step_ms > 1e3 * kLongProbe) break;
  }
  const auto all = static_cast<double>(sequences * tokens);
  const double matrices =
      static_cast<double>(model.matrix_parameters()) / static_cast<double>(part.matrix_parameters());
  const double rest_bytes = 2 * kFloat * static_cast<double>(part.parameters() - part.matrix_parameters());
  const double whole_rest_bytes = 2 * kFloat * static_cast<double>(model.parameters() - model.matrix_parameters());
  const double matrix_bytes = std::max(0.0, static_cast<double>(state_bytes(stepper.optimizer())) - rest_bytes);
  return {(record.step_ms - record.optimizer_ms) / 1e3 / step_work(part, all, static_cast<double>(tokens)),
          record.optimizer_ms / 1e3 * optimizer_work(model) / optimizer_work(part),
          matrix_bytes * matrices + whole_rest_bytes};
}

double total_memory(at::Device device) {
  if (device.is_cpu()) return static_cast<double>(memory_bytes());
  return static_cast<double>(at::accelerator::getMemoryInfo(device.index()).second);
}

}  // namespace

void set_up_torch(const io::Config& config) {
  if (const auto threads = config.integer("run.threads"); threads > 0) at::set_num_threads(static_cast<int>(threads));
  const bool deterministic = config.boolean("train.deterministic");
  // cuBLAS is deterministic only with a workspace of fixed size; torch's deterministic mode requires the setting.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(deterministic);
}

Estimate estimate(const io::Config& config, const DatasetSize& data, int64_t done, int64_t processes) {
  set_up_torch(config);
  const auto device = device_of(config.string("run.device"));
  Estimate result{.model = model_config(config, data.vocab)};
  const auto& model = result.model;
  const auto parameters = static_cast<double>(model.parameters()),
             matrices = static_cast<double>(model.matrix_parameters());
  const auto steps = config.integer("train.steps");
  result.step_tokens = config.integer("train.batch") * config.integer("train.context");
  result.tokens = steps * result.step_tokens;
  result.epochs = static_cast<double>(result.tokens) / static_cast<double>(std::max<int64_t>(data.epoch_tokens, 1));

  const auto probe = probe_step(config, model, device);
  if (!device.is_cpu()) at::accelerator::emptyCache();
  result.memory = {
      .weights = kFloat * parameters,
      .gradients = kFloat * parameters,
      .optimizer = probe.state_bytes + 2 * kFloat * matrices,
      .activations = activation_bytes(config, model, device, processes) + (device.is_cpu() ? kProgram : 0)};
  result.total_memory = total_memory(device);
  result.checkpoint_bytes = kFloat * parameters + probe.state_bytes;
  const auto every = config.integer("checkpoint.every");
  const int64_t saves = every > 0 ? (steps - 1) / every + 1 : 1;
  const int64_t checkpoints = std::min(config.integer("checkpoint.keep"), saves - 1) + 1;
  result.disk_bytes =
      result.checkpoint_bytes * static_cast<double>(checkpoints) + static_cast<double>(data.bytes_to_write);

  result.optimizer_seconds = probe.optimizer_seconds;
  result.step_seconds = probe.optimizer_seconds + probe.seconds_per_flop / static_cast<double>(processes) *
                                                      step_work(model, static_cast<double>(result.step_tokens),
                                                                static_cast<double>(config.integer("train.context")));
  const auto available = data.val_tokens / config.integer("train.context");
  const auto wanted = config.integer("train.eval_sequences");
  TimeLeft left(config, wanted > 0 ? std::min(wanted, available) : available);
  left.add_step(result.step_seconds, result.optimizer_seconds);
  left.add(TimeLeft::kCheckpoint, result.checkpoint_bytes / kDiskSpeed);
  result.seconds = left.seconds(std::min(done, steps));
  return result;
}

}  // namespace prism::train
