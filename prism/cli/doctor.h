#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace prism::cli {

enum class Verdict {
  Ok,
  Warning,  // training works, but slower or less comfortably than it could
  Problem,  // training would fail
};

struct Finding {
  Verdict verdict = Verdict::Ok;
  std::string what;  // "memory"
  std::string text;  // "15.2 GB, of which 12.1 GB are free"
  std::string mend;  // what to do; empty where all is well
};

// Compiler, torch and its libraries, processor, matrix products, threads, CUDA.
std::vector<Finding> check_torch();
// Memory, disk (here and where `out` will be), locale and terminal.
std::vector<Finding> check_system(const std::filesystem::path& out);

struct ChildResult {
  int status = 0;      // exit status, when no signal ended it
  int signal = 0;      // that ended it
  std::string output;  // standard output and error together, at most 64 KiB

  bool ended_well() const { return status == 0 && signal == 0; }
};

// What a probe of bfloat16 products means, run as it is and, where that fails, with instructions (AMX) forbidden. Some
// virtual machines announce instructions that trap when they are used.
using Probe = std::function<ChildResult(const std::vector<std::string>& environment)>;
Finding judge_bfloat16(const Probe& probe);

// Multiplies matrices of the type "float32" or "bfloat16" for a moment and prints the GFLOP/s. Meant for a process of
// its own, which may be killed by what it tries.
int probe_product(const std::string& type);

}  // namespace prism::cli
