#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/run_data.h"

namespace prism::train {

// The folder of a training run or of a comparison: the names of its files, and what is in them. A folder has one kind:
// config.toml makes it that of a run or, where it names compare.optimizers, that of a comparison.
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

  // Returns the configuration of the run or comparison; nothing where there is none.
  std::optional<io::Config> config() const;

  // Throws prism::Error where the folder holds a comparison, or a run that is not to be resumed.
  void expect_place_for_run(bool resume) const;

  // Throws prism::Error where the folder holds a training run.
  void expect_place_for_comparison() const;

  // Returns the tokenizer of the run, which ends documents with the token of its data.eos.
  text::Tokenizer tokenizer() const;

  std::optional<RunRecord> record() const;  // nothing where there is none
  void write(const RunRecord& record) const;
  int64_t saved_step() const;                       // of the newest checkpoint that was written; 0: none
  std::optional<TrainedData> trained_data() const;  // up to the newest checkpoint; nothing where there is none

  RunSummary summary() const;
  bool has_ended() const;  // by itself, in whatever way; an interrupted run goes on
  std::vector<StepRecord> metrics() const;
  std::vector<SpectraLine> spectra() const;
  RunData data() const { return {summary(), metrics(), spectra()}; }
};

// Gives the keys that `config` leaves out, and whose default has changed, the values that the run began with.
void keep_old_defaults(io::Config& config, const io::Config& stored);

// Throws prism::Error where `config` would make another run than the one its folder holds. Reads and writes no data, so
// call it before the dataset is opened.
void check_resume(const io::Config& config);

// Throws prism::Error that names the keys in which two complete configurations differ, but for those that may. The
// second is a run's own, perhaps written before the newest options existed.
void refuse_other_run(const io::Config& wanted, const io::Config& written, const std::filesystem::path& folder);

}  // namespace prism::train
