#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "prism/cli/console.h"
#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/run.h"

namespace prism::cli {

// A training run for a process of its own.
struct Job {
  std::string name;   // "PRISM lr 0.02 seed 1"
  io::Config config;  // run.out is its folder, in which it is begun or resumed
};

struct JobsOptions {
  int64_t at_a_time = 2;
  std::filesystem::path data;              // folder of the dataset's shards
  const std::atomic<int>* stop = nullptr;  // once not zero: all are saved and ended
  std::function<bool()> out_of_time = {};  // as `stop`, when it returns true
  ProgressLine* line = nullptr;
};

// Makes the runs in processes of this program, `at_a_time` side by side and in order, each on the GPU that is its turn
// where there are several. Returns true when all have ended, false when they were saved and stopped. A run that fails
// stops the others (saved) and throws what it said.
bool run_jobs(const std::vector<Job>& jobs, const train::Dataset& dataset, const JobsOptions& options);

// Makes the run that the file of `run_jobs` describes; `prism train --job FILE`. Reports as lines of JSON on standard
// output.
int run_job(const std::filesystem::path& file);

// What should be known of so many runs at a time on this machine; empty where nothing.
std::string jobs_remark(const io::Config& config, int64_t at_a_time);

}  // namespace prism::cli
