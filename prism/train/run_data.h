#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prism/report/page.h"

namespace prism::train {

// The contents of the files in a run folder (docs/run-folder.md). run_fields.h lists the names of the fields in JSON.

using report::RunStatus;

// Joint Frobenius norms of the hidden matrices of one type at one step: ‖X‖ = √Σ‖X_layer‖² over the layers.
struct MatrixNorms {
  double G = 0, W = 0;                   // gradient, as the optimizer gets it (clipped); weights after the step
  std::optional<double> M = {}, D = {};  // momentum after the step and innovation G − M, if the rule has momentum;
                                         // with bias correction both use M/(1−βᵗ) instead of M
  std::optional<double> O = {};          // update before scale rule and rate; none if the rate is 0
};

// One line of metrics.jsonl. Interruptions of the run change only the timings at the end.
struct StepRecord {
  int64_t step = 0;    // of the optimizer, counted from 1
  int64_t tokens = 0;  // trained on so far
  double loss = 0;     // mean over the batch, before the step
  double lr = 0, aux_lr = 0;
  double grad_norm = 0;      // before clipping
  std::string batch = {};    // hash of the step's tokens
  bool skipped = false;      // the loss or the gradient was not finite, so the step changed nothing
  std::string culprit = {};  // of a skipped step: the first operation, or else gradient, that is not finite, and where
  // Keyed by the last part of the matrices' names, "q_proj", "down_proj", …; empty on skipped steps and without
  // metrics.norms.
  std::map<std::string, MatrixNorms> norms = {};
  std::optional<double> val_loss = {};
  std::optional<double> weight_norm = {};  // of all hidden matrices together, at evaluations

  double seconds = 0;  // of training so far, without evaluations and checkpoints
  double step_ms = 0, optimizer_ms = 0, tokens_per_s = 0;
};

// One line of spectra.jsonl.
struct SpectraLine : report::Spectrum {
  std::vector<double> augmented = {};  // √λ of the matrix that the iteration takes the root of; not in older files
};

// run.json: the data of a run and its newest checkpoint.
struct RunRecord {
  std::string data;                       // recipe of the training shards
  std::optional<std::string> checkpoint;  // "step-00001000"
};

// state.json of a checkpoint: the state of a run apart from weights and optimizer.
struct RunState {
  int64_t step = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t skipped = 0;          // steps that were not finite
  int64_t skipped_in_row = 0;   // up to this step
  int64_t spectra = 0;          // lines written to spectra.jsonl; older checkpoints do not count them
  std::string batches;          // hash over the hashes of all batches so far
  std::string initial_weights;  // hash
  std::string data;             // recipe of the training shards
};

// The machine and the program that a result comes from. Older files lack some fields.
struct Machine {
  std::string commit;  // that the program was built from
  std::string compiler;
  int64_t cores = 0;
  std::string cpu;
  std::string cuda;  // this, driver and gpu are empty on the CPU
  std::string date;  // UTC
  std::string device, driver, gpu;
  int64_t memory_bytes = 0;
  std::string system;
  int64_t threads = 0;
  std::string torch;
};

// summary.json. Runs of the same configuration differ only in `timing`, `memory` and the machine's date.
struct RunSummary {
  struct Route {
    std::string name;
    std::vector<int64_t> shape;
    std::string rule, optimizer;
  };
  struct Source {
    std::string path;  // empty in results of `prism reproduce`
    int64_t files = 0, bytes = 0;
    std::string hash;
  };
  struct Data {
    std::string recipe, tokenizer;  // hashes
    int64_t vocab = 0, train_tokens = 0, val_tokens = 0;
    std::vector<Source> sources;
    std::optional<double> unigram_entropy;  // in results of `prism reproduce`
  };
  struct Timing {
    double seconds = 0;                    // of training
    double step_ms = 0, optimizer_ms = 0;  // medians
    double optimizer_share = 0, tokens_per_s = 0;
  };
  struct Memory {
    std::string of;  // "device" or "host"; not in older files, whose peak is the host's
    int64_t peak_bytes = 0;
    std::optional<int64_t> reserved_peak_bytes, host_peak_bytes;
  };

  RunStatus status = RunStatus::Finished;
  int64_t step = 0, tokens = 0;
  double first_loss = report::kUnknown;
  double loss = report::kUnknown;  // mean of the last tenth of the steps
  double val_loss = report::kUnknown, best_val_loss = report::kUnknown;
  int64_t skipped = 0;
  bool stopped_early = false;  // by train.patience
  std::string diagnosis;       // of a diverged run
  int64_t parameters = 0, matrix_parameters = 0, optimizer_state_bytes = 0;
  std::string initial_weights, final_weights, batches;  // hashes; final_weights is empty while the run is in progress
  std::vector<Route> routing;
  Machine machine;
  Data data;
  Timing timing;
  Memory memory;
  std::optional<double> wall_seconds;  // in results of `prism reproduce`
};

// The data of a run that its page shows.
struct RunData {
  RunSummary summary;
  std::vector<StepRecord> metrics;
  std::vector<SpectraLine> spectra;
};

}  // namespace prism::train
