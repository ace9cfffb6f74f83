#include "prism/train/time_left.h"

namespace prism::train {
namespace {

constexpr size_t kRecent = 20;

double mean(const std::deque<std::array<double, 2>>& values, size_t index) {
  double sum = 0;
  for (const auto& value : values) sum += value[index];
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

TimeLeft::TimeLeft(const io::Config& config, int64_t eval_sequences)
    : steps_(config.integer("train.steps")),
      batch_(config.integer("train.batch")),
      eval_sequences_(eval_sequences),
      every_{config.integer("train.eval_every"), config.integer("metrics.spectra_every"),
             config.integer("checkpoint.every")} {}

void TimeLeft::add_step(double seconds, double optimizer_seconds) {
  recent_.push_back({seconds, optimizer_seconds});
  if (recent_.size() > kRecent) recent_.pop_front();
}

void TimeLeft::add(Part part, double seconds) {
  sums_[part].seconds += seconds;
  ++sums_[part].count;
}

double TimeLeft::step_seconds() const { return mean(recent_, 0); }
double TimeLeft::optimizer_seconds() const { return mean(recent_, 1); }

// Evaluations and checkpoints are also due after the last step.
int64_t TimeLeft::parts_left(Part part, int64_t step) const {
  if (step >= steps_) return 0;
  const auto every = every_[part];
  const int64_t regular = every > 0 ? steps_ / every - step / every : 0;
  const bool ends_regularly = every > 0 && steps_ % every == 0;
  return regular + (part != kSpectra && !ends_regularly ? 1 : 0);
}

double TimeLeft::expected(Part part) const {
  const auto& sum = sums_[part];
  if (sum.count > 0) return sum.seconds / static_cast<double>(sum.count);
  if (part != kEvaluation) return 0;
  // A forward pass takes about a third of the time of forward and backward passes together.
  const double per_sequence = (step_seconds() - optimizer_seconds()) / 3 / static_cast<double>(batch_);
  return per_sequence * static_cast<double>(eval_sequences_);
}

double TimeLeft::seconds(int64_t step) const {
  double seconds = step_seconds() * static_cast<double>(steps_ - step);
  for (const auto part : {kEvaluation, kSpectra, kCheckpoint})
    seconds += expected(part) * static_cast<double>(parts_left(part, step));
  return seconds;
}

}  // namespace prism::train
