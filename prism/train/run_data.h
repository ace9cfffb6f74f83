#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prism/report/page.h"

namespace prism::train {

// What the files of a run folder hold (docs/run-folder.md); run_fields.h names the fields as they are in JSON.

using report::RunStatus;

// Joint Frobenius norms of the hidden matrices of one type at one step: ‖X‖ = √Σ‖X_layer‖² over the layers.
struct MatrixNorms {
  double G = 0, W = 0;                   // gradient, as the optimizer gets it (clipped); weights after the step
  std::optional<double> M = {}, D = {};  // momentum after the step and innovation G − M, where the rule has momentum;
                                         // with bias correction M/(1−βᵗ) stands for M in both
  std::optional<double> O = {};          // update before scale rule and rate; none where the rate is 0
};

// One line of metrics.jsonl. Everything but the last two lines is the same however often the run was interrupted.
struct StepRecord {
  int64_t step = 0;    // of the optimizer, counted from 1
  int64_t tokens = 0;  // trained on so far
  double loss = 0;     // mean over the batch, before the step
  double lr = 0, aux_lr = 0;
  double grad_norm = 0;      // before clipping
  std::string batch = {};    // hash of the step's tokens
  bool skipped = false;      // the loss or the gradient was not finite, and the step changed nothing
  std::string culprit = {};  // then: the first operation, or else gradient, that is not finite, and in which sequence
  // By the last part of the matrices' names, "q_proj", "down_proj", …; none on skipped steps and without metrics.norms.
  std::map<std::string, MatrixNorms> norms = {};
  std::optional<double> val_loss = {};
  std::optional<double> weight_norm = {};  // of all hidden matrices together, at evaluations

  double seconds = 0;  // of training so far, evaluations and checkpoints not counted
  double step_ms = 0, optimizer_ms = 0, tokens_per_s = 0;
};

// One line of spectra.jsonl.
struct SpectraLine : report::Spectrum {
  std::vector<double> augmented = {};  // √λ of the matrix that the iteration takes the root of; not in older files
};

// run.json: what a run is known by while it goes on.
struct RunRecord {
  std::string data;                       // recipe of the training shards
  std::optional<std::string> checkpoint;  // name of the newest that was written, "step-00001000"
};

// state.json of a checkpoint: what a run knows beside weights and optimizer state.
struct RunState {
  int64_t step = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t skipped = 0;          // steps that the guard canceled
  int64_t skipped_in_row = 0;   // up to now
  std::string batches;          // hash over the hashes of all batches so far
  std::string initial_weights;  // hash
  std::string data;             // recipe of the training shards
};

// What a measurement should name. Older files lack some.
struct Machine {
  std::string commit;  // the program was built from
  std::string compiler;
  int64_t cores = 0;
  std::string cpu;
  std::string cuda;  // this, driver and gpu: on a GPU
  std::string date;  // UTC
  std::string device, driver, gpu;
  int64_t memory_bytes = 0;
  std::string system;
  int64_t threads = 0;
  std::string torch;
};

// summary.json. `timing` and `memory` differ from run to run, as does the machine's date; all else is the same for the
// same configuration.
struct RunSummary {
  struct Route {
    std::string name;
    std::vector<int64_t> shape;
    std::string rule, optimizer;
  };
  struct Source {
    std::string path;  // none in the results of `prism reproduce`
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
  std::string initial_weights, final_weights, batches;  // hashes; no final weights while the run goes on
  std::vector<Route> routing;
  Machine machine;
  Data data;
  Timing timing;
  Memory memory;
  std::optional<double> wall_seconds;  // in results of `prism reproduce`
};

// All that a page shows of a run.
struct RunData {
  RunSummary summary;
  std::vector<StepRecord> metrics;
  std::vector<SpectraLine> spectra;
};

}  // namespace prism::train
