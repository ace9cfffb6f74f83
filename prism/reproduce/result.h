#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "prism/io/config.h"
#include "prism/reproduce/gain.h"
#include "prism/reproduce/stability.h"
#include "prism/train/dataset.h"
#include "prism/train/run_folder.h"

namespace prism::reproduce {

// Part of every run's key. Raise it by one, by hand, when a change makes the same settings train to other losses; runs
// made before are then made again.
inline constexpr int64_t kNumerics = 1;

// What decides the result of a run. Two runs with equal keys have equal losses, up to rounding on a GPU.
struct RunKey {
  nlohmann::json settings;  // key → value: model, batch, steps, seed, optimizer, schedule and how the loss is measured
  std::string data;         // recipe of the shards: text, tokenizer and split
  std::string device;       // "cpu" or "cuda"

  std::string hash() const;           // 32 hexadecimal digits
  std::string settings_hash() const;  // without data and device
};

// The settings of a configuration, completed as a run completes it. Leaves out what does not change the losses:
// folders, checkpoints, what is recorded, how the work is split into passes over memory.
nlohmann::json key_settings(const io::Config& config);

// Joint Frobenius norms of all hidden matrices at some steps, named as in metrics.jsonl; empty where not recorded.
struct NormLists {
  std::vector<int64_t> step = {};
  std::vector<double> D = {}, G = {}, M = {}, O = {}, W = {};
};

// What a pool keeps of a finished run, a few KiB of JSON.
struct StoredRun {
  RunKey key = {};
  int64_t numerics = kNumerics;
  train::RunSummary summary = {};  // without routing and paths; with data.unigram_entropy and wall_seconds
  Stability stability = {};
  NormLists norms = {};         // at most 40 steps
  SpectraSummary spectra = {};  // where the run recorded spectra
  report::PageRun curves = {};  // what a page shows of the run, at most 100 points a curve

  std::string file_name() const;  // "prism-lr0.02-seed1-0123456789ab.json"
  bool is_current() const { return numerics == kNumerics; }
};

double rounded(double value);  // to five significant digits, as results keep measured numbers

// Reads the folder of a run that ended.
StoredRun store(const RunKey& key, const train::RunFolder& folder, double unigram_entropy, double wall_seconds);

std::string to_text(const StoredRun& run);                     // JSON, a line for each part
StoredRun read_stored_run(const std::filesystem::path& file);  // prism::Error if it is not one

// −Σ p log p over the tokens' frequencies, in nats.
double unigram_entropy(const data::Shards& shards);

}  // namespace prism::reproduce
