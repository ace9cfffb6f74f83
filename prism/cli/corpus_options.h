#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "prism/data/reader.h"

namespace prism::cli {

// Which text a command reads, and how it becomes documents.
struct CorpusOptions {
  std::vector<std::string> paths;
  data::ReaderOptions reader;

  void add_to(CLI::App& app);
  data::Corpus open() const { return data::Corpus(paths, reader); }
};

std::string skipped_files(const data::Skipped& skipped);  // "skipped files: 3 hidden, 1 binary"; empty where none were

}  // namespace prism::cli
