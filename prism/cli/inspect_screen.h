#pragma once

#include <string>
#include <vector>

#include "prism/cli/console.h"
#include "prism/train/inspection.h"

namespace prism::cli {

// The data of a run that `prism inspect` shows.
struct RunView {
  std::string path;
  std::vector<train::StepRecord> metrics;
  std::vector<train::SpectraLine> spectra;
};

// The data of a checkpoint that `prism inspect` shows.
struct CheckpointView {
  std::string path;
  int64_t step = 0;  // the number of steps before it
  std::vector<train::CheckpointMatrix> matrices;
  std::vector<train::SpectraLine> spectra;  // of one batch's gradient; empty without --data
};

// Return plots of the losses and of the median SNR and gain over training, and a table of all matrices. If `matrix`, a
// part of a name, is given, they show the directions of the first matrix that matches instead of the table.
std::string screen_of(const RunView& view, const std::string& matrix, const Terminal& terminal);
std::string screen_of(const CheckpointView& view, const std::string& matrix, const Terminal& terminal);

report::PageDocument checkpoint_document(const CheckpointView& view);

}  // namespace prism::cli
