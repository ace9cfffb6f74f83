#include "prism/train/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/optim/gradients.h"
#include "prism/train/config.h"

namespace prism::train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

void synchronize(at::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.has_index() ? device.index() : 0);
}

constexpr size_t kRest = 0;  // Mixed's first group: its first rule is that of the embeddings

Mixed make_optimizer(const io::Config& config, const model::Qwen2& model) {
  const auto pair = optimizer_options(config);
  return {model.named_parameters(), *pair.matrices, *pair.rest};
}

}  // namespace

Trainer::Trainer(const io::Config& config, const Dataset& dataset, model::Qwen2 model)
    : context_(config.integer("train.context")),
      batch_(config.integer("train.batch")),
      accumulate_(config.integer("train.accumulate")),
      clip_(config.real("train.clip")),
      schedule_(schedule(config)),
      model_(std::move(model)),
      optimizer_(make_optimizer(config, model_)),
      sampler_(dataset.train, {batch_, context_, static_cast<uint64_t>(config.integer("train.seed"))}),
      windows_(dataset.val, context_, config.integer("train.eval_sequences")) {
  for (const auto& [name, tensor] : model_.named_parameters()) parameters_.push_back(tensor);
  for (size_t group = 0; group < optimizer_.param_groups().size(); ++group)
    peak_rates_.push_back(optimizer_.group_options(group).lr());
  model_.set_recompute(config.boolean("model.recompute"));
}

Tensor Trainer::to_device(const std::vector<int64_t>& tokens, int64_t sequences) const {
  auto batch = at::empty({sequences, context_ + 1}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), batch.mutable_data_ptr<int64_t>());
  return batch.to(model_.device());
}

double Trainer::accumulate_gradients(int64_t step, StepRecord& record) {
  const int64_t sequences = batch_ / accumulate_;
  std::vector<int64_t> tokens(static_cast<size_t>(sampler_.batch_tokens()));
  sampler_.read(step - 1, tokens);
  record.batch = data::batch_hash(tokens);
  sampler_.prefetch(step);

  std::vector<Tensor> losses;
  const auto pass_tokens = sequences * (context_ + 1);
  for (int64_t pass = 0; pass < accumulate_; ++pass) {
    const auto first = tokens.begin() + pass * pass_tokens;
    auto loss = model_.loss(to_device({first, first + pass_tokens}, sequences));
    (accumulate_ == 1 ? loss : loss / accumulate_).backward();
    losses.push_back(loss.detach());
  }
  double sum = 0;
  for (const auto& loss : losses) sum += loss.item<double>();
  return sum / static_cast<double>(accumulate_);
}

std::string Trainer::first_nonfinite() const {
  for (const auto& [name, tensor] : model_.named_parameters()) {
    if (tensor.grad().defined() && !at::isfinite(tensor.grad()).all().item<bool>()) return name;
  }
  return "";
}

void Trainer::set_rates(int64_t step, StepRecord& record) {
  const double factor = schedule_(step);
  for (size_t group = 0; group < peak_rates_.size(); ++group) {
    const double rate = peak_rates_[group] * factor;
    optimizer_.param_groups()[group].options().set_lr(rate);
    (group == kRest ? record.aux_lr : record.lr) = rate;
  }
}

StepRecord Trainer::step(int64_t step) {
  StepRecord record;
  record.step = step;
  const auto begin = Clock::now();
  release_gradients();
  record.loss = accumulate_gradients(step, record);
  const double most = clip_ > 0 ? clip_ : std::numeric_limits<double>::infinity();
  record.grad_norm = clip_grad_norm(parameters_, most).item<double>();
  set_rates(step, record);

  const auto optimizer_begin = Clock::now();
  record.skipped = !std::isfinite(record.loss) || !std::isfinite(record.grad_norm);
  if (record.skipped) {
    record.culprit = first_nonfinite();
  } else {
    optimizer_.step();
    synchronize(model_.device());
  }
  record.optimizer_ms = milliseconds(optimizer_begin);
  record.step_ms = milliseconds(begin);
  record.tokens_per_s = 1e3 * static_cast<double>(step_tokens()) / record.step_ms;
  return record;
}

void Trainer::release_gradients() { optimizer_.zero_grad(); }

double Trainer::evaluate() const {
  const at::NoGradGuard no_grad;
  const int64_t sequences = std::min(batch_ / accumulate_, windows_.count());
  double sum = 0;
  for (int64_t first = 0; first < windows_.count(); first += sequences) {
    const auto count = std::min(sequences, windows_.count() - first);
    std::vector<int64_t> tokens(static_cast<size_t>(count * (context_ + 1)));
    for (int64_t i = 0; i < count; ++i) {
      windows_.read(first + i, std::span(tokens).subspan(static_cast<size_t>(i * (context_ + 1)),
                                                         static_cast<size_t>(context_ + 1)));
    }
    sum += model_.loss(to_device(tokens, count)).item<double>() * static_cast<double>(count);
  }
  return sum / static_cast<double>(windows_.count());
}

double Trainer::weight_norm() const {
  const at::NoGradGuard no_grad;
  double squares = 0;
  const auto& lines = optimizer_.routing().lines();
  const auto& rules = optimizer_.routing().rules();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (rules[lines[i].rule].label != "hidden matrix") continue;
    squares += std::pow(at::linalg_vector_norm(parameters_[i], 2).item<double>(), 2);
  }
  return std::sqrt(squares);
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
