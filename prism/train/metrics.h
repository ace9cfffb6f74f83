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

nlohmann::json to_json(const StepRecord& record);  // a line of metrics.jsonl
std::vector<SpectraLine> spectra_lines(int64_t step, const std::vector<MatrixSpectrum>& spectra);  // one per matrix

// Writes metrics.jsonl, metrics.csv, spectra.jsonl and the TensorBoard file of a run folder, beginning with the step
// after `step`. Removes later lines of an interrupted run; `take_earlier` returns the records that remain.
class MetricsWriter {
 public:
  struct Files {
    bool csv = true, tensorboard = true;
  };
  MetricsWriter(const RunFolder& folder, int64_t step, Files files);

  std::vector<StepRecord> take_earlier() { return std::move(earlier_); }
  int64_t lines_of_metrics() const { return metrics_.lines(); }
  int64_t lines_of_spectra() const { return spectra_.lines(); }

  void write(const StepRecord& record);
  void write(const std::vector<SpectraLine>& spectra);
  void text(const std::string& tag, const std::string& markdown);  // shown by TensorBoard
  void sync();  // flushes the files; call it before saving a checkpoint that relies on them

 private:
  io::JsonLinesWriter metrics_;
  io::JsonLinesWriter spectra_;
  std::optional<io::FileDescriptor> csv_;
  std::optional<report::EventWriter> events_;
  int64_t first_step_;
  std::vector<StepRecord> earlier_;
};

}  // namespace prism::train
