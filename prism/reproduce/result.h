#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "prism/io/config.h"
#include "prism/train/dataset.h"

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

// What a pool keeps of a finished run, a few KiB:
//   key, numerics, settings, data, device    as above
//   summary     as summary.json has it, without routing and paths; data.unigram_entropy and wall_seconds besides
//   stability   divergence and spikes (stability.h)
//   norms       lists over at most 40 steps: joint Frobenius norms of all hidden matrices, named as in metrics.jsonl
//   curves      what a page shows of the run, at most 100 points a curve
//   spectra     R² of the gain and quantiles of the SNR (gain.h), where the run recorded spectra; null elsewhere
struct StoredRun {
  RunKey key;
  nlohmann::json summary, stability, curves, norms, spectra = {};

  std::string file_name() const;  // "prism-lr0.02-seed1-0123456789ab.json"
  double wall_seconds() const { return summary.at("wall_seconds"); }
};

double rounded(double value);  // to five significant digits, as results keep measured numbers

// Reads the folder of a run that ended.
StoredRun store(const RunKey& key, const std::filesystem::path& run, double unigram_entropy, double wall_seconds);

std::string to_text(const StoredRun& run);  // JSON, a line for each part
StoredRun stored_run_from_json(const nlohmann::json& object,
                               const std::string& where);  // prism::Error if it is not one

// −Σ p log p over the tokens' frequencies, in nats.
double unigram_entropy(const data::Shards& shards);

}  // namespace prism::reproduce
