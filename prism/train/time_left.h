#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "prism/io/config.h"

namespace prism::train {

// The time that is left of a run: its steps at the pace of the last 20, and the evaluations, records of spectra and
// checkpoints still to come at what each took so far.
class TimeLeft {
 public:
  enum Part { kEvaluation, kSpectra, kCheckpoint, kParts };

  // For the configuration of a run and the number of sequences of an evaluation.
  TimeLeft(const io::Config& config, int64_t eval_sequences);

  void add_step(double seconds, double optimizer_seconds);
  void add(Part part, double seconds);

  double step_seconds() const;         // means over the last steps
  double optimizer_seconds() const;    //
  double seconds(int64_t step) const;  // what is left after this step; needs a step

  int64_t parts_left(Part part, int64_t step) const;  // how often it is due after this step

 private:
  struct Sum {
    double seconds = 0;
    int64_t count = 0;
  };
  double expected(Part part) const;  // seconds of one

  int64_t steps_, batch_, eval_sequences_;
  std::array<int64_t, kParts> every_;
  std::deque<std::array<double, 2>> recent_;  // of a step and its optimizer
  std::array<Sum, kParts> sums_;
};

}  // namespace prism::train
