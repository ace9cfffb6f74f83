#pragma once

#include <string>
#include <vector>

#include "prism/cli/console.h"
#include "prism/train/inspection.h"

namespace prism::cli {

// What `prism inspect` shows, as plain values.
struct RunView {
  std::string path;
  std::vector<train::StepRecord> metrics;
  std::vector<train::SpectraLine> spectra;
};

struct CheckpointView {
  std::string path;
  int64_t step = 0;  // after which it was written
  std::vector<train::CheckpointMatrix> matrices;
  std::vector<train::SpectraLine> spectra;  // of one batch's gradient; empty without
};

// Plots of the losses, of the median SNR and gain over training, and a table of all matrices; with `matrix`, a part of
// a name, the directions of the first that matches.
std::string screen_of(const RunView& view, const std::string& matrix, const Terminal& terminal);
std::string screen_of(const CheckpointView& view, const std::string& matrix, const Terminal& terminal);

report::PageDocument checkpoint_document(const CheckpointView& view);

}  // namespace prism::cli
