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

// Part of every run's key. Raise it by one when a change makes the same settings train to other losses. Older results
// are then no longer used.
inline constexpr int64_t kNumerics = 1;

// Everything that decides the result of a run. Runs with equal keys have equal losses, up to rounding
// on a GPU and between versions.
struct RunKey {
  nlohmann::json settings;  // key → value: model, batch, steps, seed, optimizer, schedule and evaluation
  std::string data;         // recipe of the shards: text, tokenizer and split
  std::string device;       // "cpu" or "cuda"

  std::string hash() const;           // 32 hexadecimal digits
  std::string settings_hash() const;  // without data and device
};

// Returns the settings of a configuration, resolved as a run resolves them. Leaves out what does not change the losses:
// folders, checkpoints, what is recorded, options that trade memory for time.
nlohmann::json key_settings(const io::Config& config);

// Joint Frobenius norms of all hidden matrices at some steps, named as in metrics.jsonl; empty if not recorded.
struct NormLists {
  std::vector<int64_t> step = {};
  std::vector<double> D = {}, G = {}, M = {}, O = {}, W = {};
};

// The part of a finished run that the pool keeps, a few KiB of JSON.
struct StoredRun {
  RunKey key = {};
  int64_t numerics = kNumerics;
  train::RunSummary summary = {};  // without routing and paths; with data.unigram_entropy and wall_seconds
  Stability stability = {};
  NormLists norms = {};         // at most 40 steps
  SpectraSummary spectra = {};  // empty if the run recorded none
  report::PageRun curves = {};  // for a page, at most 100 points per curve

  std::string file_name() const;  // "prism-lr0.02-seed1-0123456789ab.json"
  bool is_current() const { return numerics == kNumerics; }
};

double rounded(double value);  // to the five significant digits that results keep

// Reads the folder of a run that has ended.
StoredRun read_run(const RunKey& key, const train::RunFolder& folder, double unigram_entropy, double wall_seconds);

std::string to_text(const StoredRun& run);                     // JSON, one line per part
StoredRun read_stored_run(const std::filesystem::path& file);  // throws prism::Error if it is not one

// Returns −Σ p log p over the frequencies p of the tokens, in nats.
double unigram_entropy(const data::Shards& shards);

}  // namespace prism::reproduce
