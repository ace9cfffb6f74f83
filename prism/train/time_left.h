#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "prism/io/config.h"

namespace prism::train {

// Estimates the time left of a run: its steps at the pace of the last 20, and the evaluations, spectra and checkpoints
// still to come at their mean time so far.
class TimeLeft {
 public:
  enum Part { kEvaluation, kSpectra, kCheckpoint, kParts };

  TimeLeft(const io::Config& config, int64_t eval_sequences);  // sequences per evaluation

  void add_step(double seconds, double optimizer_seconds);
  void add(Part part, double seconds);

  double step_seconds() const;         // mean over the last steps
  double optimizer_seconds() const;    // mean over the last steps
  double seconds(int64_t step) const;  // left after this step; call add_step first

  int64_t parts_left(Part part, int64_t step) const;  // due after this step

 private:
  struct Sum {
    double seconds = 0;
    int64_t count = 0;
  };
  double expected(Part part) const;  // seconds

  int64_t steps_, batch_, eval_sequences_;
  std::array<int64_t, kParts> every_;
  std::deque<std::array<double, 2>> recent_;  // seconds of a step and of its optimizer
  std::array<Sum, kParts> sums_;
};

}  // namespace prism::train
