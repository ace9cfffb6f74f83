#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/config.h"

namespace prism::cli {

// What `train` and `compare` share: the configuration from a file, from --set, and the folder.
struct ConfigOptions {
  std::optional<std::string> file;
  std::vector<std::string> settings;
  std::optional<std::string> out;

  void attach(CLI::App& app);
  void apply(io::Config& config) const;  // in this order: file, settings, out
};

}  // namespace prism::cli
