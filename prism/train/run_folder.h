#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/run_data.h"

namespace prism::train {

// The folder of a training run or of a comparison: the names of its files and their contents. It belongs to a
// comparison if its config.toml lists compare.optimizers, else to a run.
struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path config_file() const { return path / "config.toml"; }
  std::filesystem::path metrics_file() const { return path / "metrics.jsonl"; }
  std::filesystem::path metrics_table() const { return path / "metrics.csv"; }
  std::filesystem::path spectra_file() const { return path / "spectra.jsonl"; }
  std::filesystem::path record_file() const { return path / "run.json"; }
  std::filesystem::path summary_file() const { return path / "summary.json"; }
  std::filesystem::path runs_table() const { return path / "runs.csv"; }  // of a comparison
  std::filesystem::path page_file() const { return path / "report.html"; }
  std::filesystem::path tokenizer_file() const { return path / "tokenizer.json"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path best() const { return path / "best"; }

  // Returns the configuration of the run or comparison; nothing if the folder has none.
  std::optional<io::Config> config() const;

  // Throws prism::Error if the folder holds a comparison, or if it holds a run and `resume` is false.
  void check_can_train(bool resume) const;

  // Throws prism::Error if the folder holds a training run.
  void check_can_compare() const;

  // Returns the tokenizer of the run, with the token of data.eos at the end of documents.
  text::Tokenizer tokenizer() const;

  std::optional<RunRecord> record() const;  // nothing if there is none
  void write(const RunRecord& record) const;
  int64_t saved_step() const;                       // of the newest checkpoint; 0 if there is none
  std::optional<TrainedData> trained_data() const;  // nothing if there is no checkpoint

  RunSummary summary() const;
  bool has_ended() const;  // finished or diverged; an interrupted run can be resumed
  std::vector<StepRecord> metrics() const;
  std::vector<SpectraLine> spectra() const;
  RunData data() const { return {summary(), metrics(), spectra()}; }
};

// Copies from `stored` the values of keys whose default has changed, if `config` leaves them out.
void keep_old_defaults(io::Config& config, const io::Config& stored);

// Throws prism::Error if `config` would not continue the run in its folder. Does not touch the data, so it can be
// called before the dataset is opened.
void check_resume(const io::Config& config);

// Throws prism::Error if two complete configurations differ in a key that may not change; the message lists these keys.
// `written` is that of the run in `folder`. It may have been written before the newest options existed.
void check_same_run(const io::Config& wanted, const io::Config& written, const std::filesystem::path& folder);

}  // namespace prism::train
