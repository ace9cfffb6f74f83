#pragma once

#include <string>
#include <vector>

namespace prism::cli {

struct ChildResult {
  int status = 0;      // exit status, when no signal ended it
  int signal = 0;      // that ended it
  std::string output;  // standard output and error together, at most 64 KiB

  bool ended_well() const { return status == 0 && signal == 0; }
};

// Runs this program again in a process of its own, with "NAME=value" added to the environment. A child that takes more
// than a minute is ended (SIGALRM).
ChildResult run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

}  // namespace prism::cli
