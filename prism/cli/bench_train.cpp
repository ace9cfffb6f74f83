#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "prism/bench/peers.h"
#include "prism/bench/timing.h"
#include "prism/bench/training.h"
#include "prism/cli/bench.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/model/config.h"
#include "prism/report/text_table.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

constexpr size_t kMostLines = 25;

// Sizes left at 0 or "" take the device's defaults.
struct BenchTrainOptions : BenchOptions {
  bench::TrainingOptions training{.preset = "", .vocab = 0, .batch = 0, .context = 0};
  std::vector<std::string> optimizers;
  std::string peers;
  bool no_graph = false, profile = false;

  bench::TrainingOptions training_on(at::Device on) const {
    const auto usual = bench::TrainingOptions::for_device(on);
    auto result = training;
    result.graph = !no_graph;
    if (result.preset.empty()) result.preset = usual.preset;
    if (result.vocab == 0) result.vocab = usual.vocab;
    if (result.batch == 0) result.batch = usual.batch;
    if (result.context == 0) result.context = usual.context;
    return result;
  }
};

std::string training_table(const std::vector<bench::TrainingTime>& rows) {
  using enum report::Align;
  report::TextTable table({{"optimizer"},
                           {"tokens/s", Right},
                           {"ms", Right},
                           {"optimizer", Right},
                           {"memory", Right},
                           {"last loss", Right}});
  for (const auto& row : rows) {
    table.row({row.name, grouped(static_cast<int64_t>(row.tokens_per_s())), in_ms(row.step_ms),
               row.optimizer_ms ? fmt::format("{:.1f} %", 100 * *row.optimizer_ms / row.step_ms) : "",
               in_bytes(static_cast<double>(row.peak_bytes)), fmt::format("{:.3f}", row.last_loss)});
  }
  return table.text();
}

int bench_train(const BenchTrainOptions& options) {
  const auto device = train::device_of(options.device, "--device");
  auto training = options.training_on(device);
  auto results = options.results(device);
  std::optional<bench::Peers> peers;
  if (!options.peers.empty()) peers.emplace(options.peers);
  ProgressLine line;
  std::vector<bench::TrainingTime> rows;
  const auto optimizers = options.optimizers.empty() ? std::vector{training.optimizer} : options.optimizers;
  for (const auto& optimizer : optimizers) {
    training.optimizer = optimizer;
    rows.push_back(bench::measure_training(training, device, options.profile, [&](int64_t step) {
      if (line.due()) line.update(fmt::format("{}  step {}/{}", optimizer, step, training.steps));
    }));
    bench::release_cache(device);
  }
  std::vector<std::string> missing;
  if (peers) {
    line.update("peers");
    const auto theirs = peers->measure(training, device, [&](const auto& peer, const auto& why) {
      missing.push_back(fmt::format("{} ({})", peer, why));
    });
    rows.insert(rows.end(), theirs.begin(), theirs.end());
  }
  line.clear();
  fmt::print("{}, torch {}\n{}, {} × {} random tokens of {}; medians of {}{}\n\n{}", bench::device_name(device),
             TORCH_VERSION, training.preset, training.batch, training.context, grouped(training.vocab),
             io::counted(training.steps, "step"), rows.front().graph ? ", from a CUDA graph" : "",
             training_table(rows));
  if (!missing.empty()) fmt::print("not measured: {}\n", fmt::join(missing, ", "));
  for (const auto& row : rows) {
    if (!row.profile) continue;
    fmt::print("\nOne step with {}: {} ms from the first {} to the last\n{}", row.name, in_ms(row.profile->total_ms),
               device.is_cpu() ? "operator" : "kernel", profile_table(*row.profile, device, kMostLines));
  }
  if (results) results->merge(bench::training_figures(training, rows));
  return 0;
}

void add_options(CLI::App& app, BenchTrainOptions& options) {
  auto& training = options.training;
  add_name(app, "--preset", training.preset, model::preset_names(), "Model (default 22m; on the CPU demo)")
      ->default_str("");
  const auto size = [&](const char* name, int64_t& value, const char* doc) {
    add_integer(app, name, value, doc, 1, 1 << 20)->default_str("");  // the model's largest sizes
  };
  size("--vocab", training.vocab, "Vocabulary size (default 16384; on the CPU 4096)");
  size("--batch", training.batch, "Sequences per step (default 32; on the CPU 16)");
  size("--context", training.context, "Tokens per sequence (default 2048; on the CPU 128)");
  std::vector<std::string> names;
  for (const auto& entrant : bench::entrants()) {
    if (!entrant.rest) names.push_back(entrant.name);
  }
  add_names(app, "--optimizer", options.optimizers, names,
            "Optimizers of the hidden matrices; names as in prism\nbench optimizer. AdamW takes the rest\n(default "
            "prism_minimax9)");
  add_integer(app, "--steps", training.steps, "Steps to take the median of", 1);
  app.add_flag("--recompute", training.recompute, "Recompute activations in the backward pass");
  app.add_flag("--no-graph", options.no_graph, "Launch each kernel instead of replaying a CUDA graph");
  add_device(app, options.device);
  app.add_flag("--profile", options.profile, "Also profile one step: its kernels or operators");
  app.add_option("--peers", options.peers,
                 "Also measure the training steps of this program\n(bench/peers.py train sets it)")
      ->type_name("COMMAND");
  options.attach_json(app);
}

}  // namespace

Command bench_train_command() {
  return make_command("train", "Time training steps on random tokens",
                      "prism bench train --preset 22m --optimizer prism muon adamw\n"
                      "prism bench train --device cpu --profile\n"
                      "python bench/peers.py train --preset 22m      # with the same model in PyTorch",
                      add_options, bench_train);
}

}  // namespace prism::cli
