#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace prism::cli {

enum class Verdict {
  Ok,
  Warning,  // training works, but could be faster or safer
  Problem,  // training will fail
};

struct Finding {
  Verdict verdict = Verdict::Ok;
  std::string what;  // "memory"
  std::string text;  // "15.2 GB, 12.1 GB free"
  std::string fix;   // the remedy; empty if all is well
};

// Checks compiler, torch and its libraries, processor, matrix products, threads and CUDA.
std::vector<Finding> check_torch();
// Checks memory, disk (here and at `out`), locale and terminal.
std::vector<Finding> check_system(const std::filesystem::path& out);

struct ChildResult {
  int status = 0;      // exit status; 0 if a signal ended it
  int signal = 0;      // the signal that ended it, or 0
  std::string output;  // standard output and error, at most 64 KiB

  bool ended_well() const { return status == 0 && signal == 0; }
};

// Probes bfloat16 products, and again without AMX instructions if that fails: some virtual machines announce AMX but
// trap when it is used.
using Probe = std::function<ChildResult(const std::vector<std::string>& environment)>;
Finding judge_bfloat16(const Probe& probe);

// Multiplies matrices of type "float32" or "bfloat16" for 0.4 s and prints the GFLOP/s. Run it in a process of its own,
// since the product may kill the process.
int probe_product(const std::string& type);

}  // namespace prism::cli
