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

// A training run to be made in a process of its own.
struct Job {
  std::string name;   // "PRISM lr 0.02 seed 1"
  io::Config config;  // run.out is its folder; a run found there is resumed
};

struct JobsOptions {
  int64_t at_a_time = 2;
  std::filesystem::path data;              // folder of the dataset's shards
  const std::atomic<int>* stop = nullptr;  // if not zero, all runs are saved and stopped
  std::function<bool()> out_of_time = {};  // if it returns true, the same
  ProgressLine* line = nullptr;
};

// Makes the runs in order, `at_a_time` of them in parallel, each in a process of this program. Several GPUs are used in
// turn. Returns true if all runs ended, false if they were saved and stopped. If a run fails, the others are saved and
// stopped, and its message is thrown.
bool run_jobs(const std::vector<Job>& jobs, const train::Dataset& dataset, const JobsOptions& options);

// Makes the run described by a file that `run_jobs` wrote (`prism train --job FILE`). Prints its progress as lines of
// JSON. Returns the exit status.
int run_job(const std::filesystem::path& file);

// Returns a warning if so many runs at a time use more threads than the machine has cores; else "".
std::string jobs_warning(const io::Config& config, int64_t at_a_time);

}  // namespace prism::cli
