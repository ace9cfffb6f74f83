#include "prism/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/train/config.h"
#include "prism/train/metrics.h"
#include "prism/train/processes.h"

namespace prism::train {

Trainer::Trainer(const io::Config& config, const Dataset& dataset, model::Qwen2 model,
                 std::shared_ptr<dist::Communicator> processes)
    : Stepper(config, std::move(model), std::move(processes)),
      schedule_(train::schedule(config)),
      sampler_(dataset.train,
               {batch(), context(), static_cast<uint64_t>(config.integer("train.seed")), dataset.stretches}),
      windows_(dataset.val, context(), config.integer("train.eval_sequences")) {
  if (sampler_.windows() >= batch()) return;
  throw Error(
      fmt::format("{}: expected at least {} training tokens, {} sequences of {} for one step, got {}; use more text, a "
                  "smaller batch or a shorter context",
                  config.where("train.batch"), step_tokens(), batch(), context(), dataset.train.tokens()));
}

void Trainer::read(int64_t step, Batch& batch) const {
  if (batch.step == step) return;
  batch.tokens.resize(static_cast<size_t>(sampler_.batch_tokens()));
  sampler_.read(step - 1, batch.tokens);
  sampler_.prefetch(step);
  batch.hash = data::batch_hash(batch.tokens);
  batch.step = step;
}

StepRecord Trainer::step(int64_t step, bool stop) {
  read(step, next_);
  const std::string hash = next_.hash;
  launch(next_.tokens, schedule_(step), stop);
  read(step + 1, next_);
  auto record = finish();
  record.step = step;
  record.batch = hash;
  return record;
}

double Trainer::evaluate() const {
  const at::NoGradGuard no_grad;
  const int64_t sequences = std::min(pass_sequences(), windows_.count()), row = context() + 1;
  const int64_t batches = (windows_.count() + sequences - 1) / sequences;
  Tensor losses = at::zeros({batches}, at::kDouble);  // those of other processes stay 0 until they are added
  for (int64_t b = processes().rank(); b < batches; b += processes().size()) {
    const int64_t first = b * sequences, count = std::min(sequences, windows_.count() - first);
    std::vector<int64_t> tokens(static_cast<size_t>(count * row));
    for (int64_t i = 0; i < count; ++i) {
      windows_.read(first + i, std::span(tokens).subspan(static_cast<size_t>(i * row), static_cast<size_t>(row)));
    }
    const auto batch = at::from_blob(tokens.data(), {count, row}, at::kLong).to(model().device());
    losses[b].fill_(model().loss(batch).item<double>() * static_cast<double>(count));
  }
  losses = losses.to(processes().device());
  processes().sum(losses);
  losses = losses.cpu();
  double sum = 0;
  for (int64_t b = 0; b < batches; ++b) sum += losses[b].item<double>();
  return sum / static_cast<double>(windows_.count());
}

double Trainer::weight_norm() const {
  const at::NoGradGuard no_grad;
  double squares = 0;
  const auto& lines = optimizer().routing().lines();
  const auto& rules = optimizer().routing().rules();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (rules[lines[i].rule].label != kHiddenMatrix) continue;
    squares += std::pow(at::linalg_vector_norm(model().named_parameters()[i].second, 2).item<double>(), 2);
  }
  return std::sqrt(squares);
}

std::vector<SpectraLine> Trainer::spectra(int64_t step) const {
  const auto lines = spectra_lines(step, optimizer().spectra());
  return is_owned() ? gathered_lines(processes(), optimizer(), lines) : lines;
}

Snapshot Trainer::optimizer_state() const {
  Snapshot state = is_owned() ? gathered_state(processes(), optimizer(), parts()) : optimizer().snapshot();
  // Set where steps are replayed from a graph. That is no part of the state: saved files must not depend on it.
  for (auto& group : state.header["groups"]) group["options"]["capturable"] = false;
  return state;
}

int64_t Trainer::state_bytes() const {
  const int64_t here = train::state_bytes(optimizer());
  if (!is_owned()) return here;
  Tensor bytes = at::zeros({1}, at::kLong).fill_(here).to(processes().device());
  processes().sum(bytes);
  return bytes.item<int64_t>();
}

std::string weights_hash(const model::Qwen2& model) {
  io::Hasher hasher;
  for (const auto& [name, tensor] : model.named_parameters()) {
    hasher.update(fmt::format("{} {}\n", name, nlohmann::json(tensor.sizes().vec()).dump()));
    const auto data = tensor.detach().cpu().contiguous();
    hasher.update({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  return hasher.digest();
}

int64_t state_bytes(const Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.snapshot().tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace prism::train
