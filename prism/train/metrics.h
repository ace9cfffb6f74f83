#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/json_lines.h"
#include "prism/optim/optimizer.h"
#include "prism/report/event_writer.h"
#include "prism/train/run_folder.h"

namespace prism::train {

nlohmann::json to_json(StepRecord record);  // a line of metrics.jsonl
std::vector<SpectraLine> spectra_lines(int64_t step, const std::vector<MatrixSpectrum>& spectra);  // one per matrix

// metrics.jsonl, metrics.csv, spectra.jsonl and the TensorBoard file of a run folder, from the step after `step` on:
// later lines of an interrupted run are cut off, and `take_earlier` gives the lines that stay.
class MetricsWriter {
 public:
  struct Files {
    bool csv = true, tensorboard = true;
  };
  MetricsWriter(const RunFolder& folder, int64_t step, Files files);

  std::vector<StepRecord> take_earlier() { return std::move(earlier_); }

  void write(const StepRecord& record);
  void write(int64_t step, const std::vector<MatrixSpectrum>& spectra);
  void text(const std::string& tag, const std::string& markdown);  // for TensorBoard
  void sync();                                                     // before a checkpoint that relies on the lines

 private:
  io::JsonLinesWriter metrics_;
  io::JsonLinesWriter spectra_;
  std::optional<io::FileDescriptor> csv_;
  std::optional<report::EventWriter> events_;
  int64_t first_step_;
  std::vector<StepRecord> earlier_;
};

}  // namespace prism::train
