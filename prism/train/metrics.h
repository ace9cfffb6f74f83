#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/json_lines.h"
#include "prism/optim/optimizer.h"
#include "prism/report/event_writer.h"
#include "prism/train/norms.h"

namespace prism::train {

// One line of metrics.jsonl. What is measured by the clock has a name in kTimings; everything else is the same however
// often the run was interrupted.
struct StepRecord {
  int64_t step = 0;    // of the optimizer, counted from 1
  int64_t tokens = 0;  // trained on so far
  double loss = 0;     // mean over the batch, before the step
  double lr = 0, aux_lr = 0;
  double grad_norm = 0;  // before clipping
  std::string batch;     // hash of the step's tokens
  bool skipped = false;  // the loss or the gradient was not finite, and the step changed nothing
  std::string culprit;   // then: the first operation, or else gradient, that is not finite, and in which sequence
  std::vector<MatrixNorms> norms;  // of each type of hidden matrices; none on skipped steps and without metrics.norms
  std::optional<double> val_loss;
  std::optional<double> weight_norm;  // of all hidden matrices together, at evaluations

  double seconds = 0;  // of training so far, evaluations and checkpoints not counted
  double step_ms = 0, optimizer_ms = 0, tokens_per_s = 0;
};

inline constexpr const char* kTimings[] = {"seconds", "step_ms", "optimizer_ms", "tokens_per_s"};

nlohmann::json to_json(const StepRecord& record);
std::vector<nlohmann::json> spectra_lines(int64_t step, const std::vector<MatrixSpectrum>& spectra);  // one per matrix

// The scalars of metrics.jsonl with a column each: metrics.csv.
std::string csv_header();
std::string csv_line(const nlohmann::json& line);  // of metrics.jsonl

// metrics.jsonl, metrics.csv, spectra.jsonl and the TensorBoard file of a run folder, from the step after `step` on:
// later lines of an interrupted run are cut off.
class MetricsWriter {
 public:
  struct Files {
    bool csv = true, tensorboard = true;
  };
  MetricsWriter(const std::filesystem::path& folder, int64_t step, Files files);

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
};

}  // namespace prism::train
