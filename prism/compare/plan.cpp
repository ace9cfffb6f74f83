#include "prism/compare/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/optim/registry.h"
#include "prism/train/config.h"
#include "prism/train/run_page.h"

namespace prism::compare {
namespace {

template <typename T>
void refuse_empty_or_repeated(const io::Config& config, const char* key, const std::vector<T>& values) {
  if (values.empty()) throw Error(fmt::format("{}: expected at least one, got none", config.where(key)));
  if (std::set<T>(values.begin(), values.end()).size() != values.size()) {
    throw Error(fmt::format("{}: expected each value once, got {}", config.where(key), fmt::join(values, ", ")));
  }
}

bool is_optimizer(const std::string& name) {
  const auto& names = optimizer_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "prism-ema" → "PRISM ema".
std::string label_of(const std::string& id) {
  const auto dash = id.find('-');
  if (dash == std::string::npos || !is_optimizer(id.substr(0, dash))) return train::optimizer_label(id);
  auto rest = id.substr(dash + 1);
  std::replace(rest.begin(), rest.end(), '-', ' ');
  return train::optimizer_label(id.substr(0, dash)) + " " + rest;
}

bool is_file_name(const std::string& id) {
  return !id.empty() &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+=") ==
             std::string::npos &&
         id[0] != '.';
}

// Returns true if contenders may differ in a key: how they optimize, and how a run is executed. Other keys decide the
// start, the data, the amount of training or the measure. Keys that are not in the table of `train` do not affect runs.
bool may_differ(std::string_view key) {
  if (train::config_table().find(key) == nullptr) return true;
  for (const std::string_view section : {"optimizer.", "schedule.", "checkpoint.", "metrics."}) {
    if (key.starts_with(section)) return true;
  }
  for (const std::string_view own :
       {"compare.label", "compare.lr", "train.clip", "train.accumulate", "train.graph", "model.recompute"}) {
    if (key == own) return true;
  }
  return false;
}

void refuse_unfair_overrides(const io::Config& config, const std::string& name) {
  const auto overridden = config.overridden(name);
  for (const auto& key : config.table().keys()) {
    const auto where = overridden.where(key.name());
    if (where == config.where(key.name())) continue;
    if (key.name() == "optimizer.lr") {
      throw Error(
          fmt::format("{}: compare.lr sets the learning rates; set compare.lr in [compare.override.{}]", where, name));
    }
    if (!may_differ(key.name())) {
      throw Error(
          fmt::format("{}: must be the same for all optimizers; set it outside of [compare.override.{}]", where, name));
    }
  }
}

// Refuses --set of the keys that the plan sets in every run. In a file they are allowed: `prism train` may read it, too.
void refuse_ignored_settings(const io::Config& config) {
  config.refuse_set("optimizer.lr", "has no effect on a comparison; set compare.lr instead");
  config.refuse_set("train.seed", "has no effect on a comparison; set compare.seeds instead");
}

// Tables, figures and sentences name contenders by label alone.
void refuse_unclear_labels(const std::vector<Contender>& contenders) {
  for (auto one = contenders.begin(); one != contenders.end(); ++one) {
    const auto where = [](const Contender& contender) { return contender.config.where("compare.label"); };
    if (std::any_of(one->label.begin(), one->label.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }))
      throw Error(fmt::format("{}: expected one line of text, got {}", where(*one), io::quote(one->label)));
    const auto same =
        std::find_if(contenders.begin(), one, [&](const auto& other) { return other.label == one->label; });
    if (same == one) continue;
    const auto& named = one->config.is("compare.label", one->label) ? *one : *same;
    throw Error(fmt::format("{}: expected a different label for each optimizer, got {} for both {} and {}",
                            where(named), io::quote(one->label), same->id, one->id));
  }
}

// The optimizer is the one of [compare.override.ID], else the one called `id`, else the one of [optimizer].
Contender make_contender(const io::Config& config, const std::string& id) {
  if (!is_file_name(id))
    throw Error(fmt::format("{}: expected a name of letters, digits and - _ . + =, got \"{}\"",
                            config.where("compare.optimizers"), id));
  Contender contender{id, label_of(id), config.overridden(id), {}};
  if (const auto label = contender.config.string("compare.label"); !label.empty()) contender.label = label;
  if (contender.config.where("optimizer.name") != config.where("optimizer.name")) return contender;  // overridden
  if (is_optimizer(id)) {
    contender.config.assign("optimizer.name", id, config.where("compare.optimizers"));
  } else if (!config.is_given("optimizer.name")) {
    throw Error(fmt::format("{}: \"{}\" is not an optimizer ({}); set optimizer.name in [compare.override.{}]",
                            config.where("compare.optimizers"), id, fmt::join(optimizer_names(), ", "), id));
  }
  return contender;
}

}  // namespace

Plan::Plan(const io::Config& config)
    : config_(config), folder_(config.string("run.out")), seeds_(config.integers("compare.seeds")) {
  const auto ids = config.strings("compare.optimizers");
  refuse_empty_or_repeated(config, "compare.optimizers", ids);
  refuse_empty_or_repeated(config, "compare.seeds", seeds_);
  refuse_ignored_settings(config);
  if (config.is_given("compare.label") && !config.is("compare.label", "")) {
    throw Error(fmt::format("{}: a label belongs to one optimizer; set it in [compare.override.NAME]",
                            config.where("compare.label")));
  }
  if (config.integer("train.patience") > 0) {
    throw Error(fmt::format("{}: expected 0, got {}; all runs of a comparison train for the same number of steps",
                            config.where("train.patience"), config.integer("train.patience")));
  }
  for (const auto& name : config.override_names()) {
    refuse_unfair_overrides(config, name);
    if (std::find(ids.begin(), ids.end(), name) == ids.end()) {
      throw Error(
          fmt::format("[compare.override.{}]: expected a name of compare.optimizers ({})", name, fmt::join(ids, ", ")));
    }
  }
  for (const auto& id : ids) {
    auto contender = make_contender(config, id);
    contender.rates = contender.config.reals("compare.lr");
    refuse_empty_or_repeated(contender.config, "compare.lr", contender.rates);
    std::sort(contender.rates.begin(), contender.rates.end());
    train::check(contender.config);
    contenders_.push_back(std::move(contender));
  }
  refuse_unclear_labels(contenders_);
  const auto baseline = config.string("compare.baseline");
  if (baseline != "auto" && std::find(ids.begin(), ids.end(), baseline) == ids.end()) {
    throw Error(fmt::format("{}: expected one of {}, got \"{}\"", config.where("compare.baseline"),
                            fmt::join(ids, ", "), baseline));
  }
}

PlannedRun Plan::run(size_t index, double lr, int64_t seed) const {
  const auto& contender = contenders_[index];
  PlannedRun run{index, lr, seed, contender.config,
                 folder_ / "runs" / fmt::format("{}-lr{}-seed{}", contender.id, lr, seed)};
  run.config.assign("optimizer.lr", lr, "compare.lr");
  run.config.assign("train.seed", seed, "compare.seeds");
  run.config.assign("run.out", run.folder.string(), config_.where("run.out"));
  return run;
}

std::string name_of(const Plan& plan, const PlannedRun& run) {
  return fmt::format("{} lr {} seed {}", plan.contenders()[run.contender].label, run.lr, run.seed);
}

std::vector<PlannedRun> Plan::at_every_rate(const std::vector<int64_t>& seeds) const {
  std::vector<PlannedRun> runs;
  for (size_t i = 0; i < contenders_.size(); ++i) {
    for (const double lr : contenders_[i].rates) {
      for (const auto seed : seeds) runs.push_back(run(i, lr, seed));
    }
  }
  return runs;
}

std::vector<PlannedRun> Plan::sweep() const { return at_every_rate({seeds_.front()}); }

std::vector<PlannedRun> Plan::possible_runs() const { return at_every_rate(seeds_); }

size_t Plan::total_runs() const {
  size_t runs = contenders_.size() * (seeds_.size() - 1);
  for (const auto& contender : contenders_) runs += contender.rates.size();
  return runs;
}

}  // namespace prism::compare
