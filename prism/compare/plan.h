#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "prism/io/config.h"

namespace prism::compare {

// One name of compare.optimizers.
struct Contender {
  std::string id;             // "prism-ema"
  std::string label;          // "PRISM ema"
  io::Config config;          // with the overrides of this name
  std::vector<double> rates;  // ascending
};

struct PlannedRun {
  size_t contender = 0;
  double lr = 0;
  int64_t seed = 0;
  io::Config config;
  std::filesystem::path folder;  // <out>/runs/prism-ema-lr0.02-seed1
};

// The runs of a comparison. The constructor throws prism::Error, which says where the value was given, for
//   a name that is neither an optimizer nor defined by [compare.override.NAME],
//   an empty list or a repeated value,
//   a label of several lines, or of two contenders,
//   --set of a key that the plan sets in every run (optimizer.lr, train.seed),
//   an override that would give one contender another start, other or more data, or another measure.
class Plan {
 public:
  explicit Plan(const io::Config& config);

  const std::vector<Contender>& contenders() const { return contenders_; }
  const std::vector<int64_t>& seeds() const { return seeds_; }
  const io::Config& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }

  std::vector<PlannedRun> sweep() const;          // every contender at every rate, with the first seed
  std::vector<PlannedRun> possible_runs() const;  // every contender at every rate with every seed
  PlannedRun run(size_t contender, double lr, int64_t seed) const;
  size_t total_runs() const;  // the sweep, and the other seeds at the best rates

 private:
  std::vector<PlannedRun> at_every_rate(const std::vector<int64_t>& seeds) const;

  io::Config config_;
  std::filesystem::path folder_;
  std::vector<Contender> contenders_;
  std::vector<int64_t> seeds_;
};

std::string name_of(const Plan& plan, const PlannedRun& run);  // "PRISM lr 0.02 seed 1"

}  // namespace prism::compare
