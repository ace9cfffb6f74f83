#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace prism::reproduce {

// Definitions of divergence and spikes of a training run. losses[i] is the training loss of step i + 1; one that is not
// finite counts as infinite.

// Returns the running loss at each step t: the mean of the last w losses up to t, where w is a tenth of the run, at
// least 1 and at most 100. The final loss is the running loss at the last step.
std::vector<double> running_loss(std::span<const double> losses);

struct Divergence {
  int64_t step = 0;    // from here on, the running loss stays above the limit; for a stopped run, the last step
  std::string reason;  // "stopped", "above unigram entropy" or "above its minimum"
};

// Returns the divergence of a run, if it diverged: if the guard stopped it, if its final loss is above the unigram
// entropy of the text (it predicts worse than the frequencies of the tokens), or if its final loss is more than 1 above
// its smallest running loss.
std::optional<Divergence> divergence(std::span<const double> losses, double unigram_entropy, bool stopped);

struct Spike {
  int64_t step = 0;                 // the first step above the threshold
  double height = 0;                // largest loss of the spike minus the median before it; may be infinite
  std::optional<int64_t> recovery;  // steps until the loss is below the threshold again; nullopt: never
};

// Returns the spikes of a run. A spike begins where a loss is above median + k·MAD of the `window` losses before it.
// MAD is the median absolute deviation, scaled to the standard deviation of a normal distribution (× 1.4826). The threshold
// stays the same until the loss is below it again. The first `window` steps have no spikes.
struct SpikeOptions {
  int64_t window = 50;
  double k = 6;
};
std::vector<Spike> spikes(std::span<const double> losses, const SpikeOptions& options = {});

// The divergence and the spikes of one run.
struct Stability {
  std::optional<Divergence> diverged;
  std::vector<Spike> spikes;
};

// Returns the difference between two means of n seeds each that a two-sided test at 5 % detects with a probability of
// 80 %, given the standard deviation s between seeds: (t₀.₉₇₅ + t₀.₈₀)·s·√(2/n) with 2(n − 1) degrees of freedom.
double detectable_difference(double standard_deviation, int64_t seeds);

}  // namespace prism::reproduce
