#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "prism/bench/profile.h"
#include "prism/bench/results.h"
#include "prism/cli/command.h"

namespace prism::cli {

// The subcommands of `prism bench`.
Command bench_optimizer_command();
Command bench_kernels_command();
Command bench_train_command();
Command bench_scaling_command();

// Options that they share.
struct BenchOptions {
  std::vector<std::string> models;
  std::string device = "auto";
  std::string json;

  void attach_models(CLI::App& app);
  void attach_json(CLI::App& app);

  std::vector<std::string> models_for(at::Device device) const;        // the given ones, or the device's defaults
  std::optional<bench::ResultsFile> results(at::Device device) const;  // nothing without --json
};

std::string in_ms(double ms);                      // four digits: 0.801, 54.93, 113.9
std::string in_rate(double rate);                  // 0.4, 5.1, 394
std::string title_of(const bench::ShapeSet& set);  // "22m: 56 matrices, 23 M parameters"
std::vector<std::string> optimizer_names();        // all that `prism bench` knows

// Returns the `most` most expensive lines of a profile and the sum of the others, within the terminal's width.
std::string profile_table(const bench::Profile& profile, at::Device device, size_t most);

}  // namespace prism::cli
