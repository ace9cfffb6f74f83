#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "prism/io/config.h"

namespace prism::compare {

// One of the things compared: a name of compare.optimizers, its configuration (overrides laid over the rest) and its
// grid of rates.
struct Contender {
  std::string id;     // "prism-ema"
  std::string label;  // "PRISM ema": for people
  io::Config config;
  std::vector<double> rates;  // ascending
};

struct PlannedRun {
  size_t contender = 0;
  double lr = 0;
  int64_t seed = 0;
  io::Config config;
  std::filesystem::path folder;  // <out>/runs/prism-ema-lr0.02-seed1
};

// Who is compared with whom, and at what. Names that are neither an optimizer nor explained by [compare.override.NAME],
// empty or repeated lists, and overrides that would give one of them another start, other or more data or another
// measure than the rest are refused with the place they were given at.
class Plan {
 public:
  explicit Plan(const io::Config& config);

  const std::vector<Contender>& contenders() const { return contenders_; }
  const std::vector<int64_t>& seeds() const { return seeds_; }
  const io::Config& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }

  std::vector<PlannedRun> sweep() const;          // every contender at every rate, with the first seed
  std::vector<PlannedRun> possible_runs() const;  // every contender at every rate with every seed
  PlannedRun run(size_t contender, double lr, int64_t seed) const;  // one run of any contender
  size_t total_runs() const;                                        // sweep, then the other seeds at the best rates

 private:
  io::Config config_;
  std::filesystem::path folder_;
  std::vector<Contender> contenders_;
  std::vector<int64_t> seeds_;
};

std::string name_of(const Plan& plan, const PlannedRun& run);  // "PRISM lr 0.02 seed 1"

}  // namespace prism::compare
