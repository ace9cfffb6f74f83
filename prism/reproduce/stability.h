#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace prism::reproduce {

// Definitions of what happened to a training run, from its training losses: losses[i] is that of step i + 1. A loss
// that is not finite counts as infinite.

// The running loss at step t is the mean of the last w losses up to t, w = a tenth of the run, at least 1 and at most
// 100. The final loss is the running loss at the last step.
std::vector<double> running_loss(std::span<const double> losses);

struct Divergence {
  int64_t step = 0;    // from here on the running loss stays above the limit; of a stopped run the last step
  std::string reason;  // "stopped", "above unigram entropy" or "above its minimum"
};

// A run diverged when the guard stopped it, when its final loss lies above the unigram entropy of the text (it knows
// less than the frequencies of the words), or when it lies more than 1 above the smallest running loss of the run.
std::optional<Divergence> divergence(std::span<const double> losses, double unigram_entropy, bool stopped);

struct Spike {
  int64_t step = 0;                 // the first step above the threshold
  double height = 0;                // largest loss of the spike minus the median before it; infinite where a loss is
  std::optional<int64_t> recovery;  // steps until the loss is below the threshold again; nothing when it never is
};

// A spike begins where a loss lies above median + k·MAD of the `window` losses before it, where MAD is the median
// absolute deviation scaled to the standard deviation of a normal distribution (× 1.4826). The threshold stays as it is
// until the loss is below it again. The first `window` steps have no spikes.
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

// The difference between two means of n seeds each that a two-sided test at 5 % finds with a probability of 80 %, from
// the standard deviation s between seeds: (t₀.₉₇₅ + t₀.₈₀)·s·√(2/n) with 2(n − 1) degrees of freedom.
double detectable_difference(double standard_deviation, int64_t seeds);

}  // namespace prism::reproduce
