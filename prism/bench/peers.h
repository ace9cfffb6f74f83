#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"
#include "prism/bench/training.h"

namespace prism::bench {

// A program that measures other implementations, such as bench/peers.py. It runs beside this one, so that the two take
// turns. They exchange lines of JSON over its standard input and output:
//   greeting            {"names": ["torch_muon", …]}, the optimizers it knows
//   optimizer request   {"kind": "optimizer", "device": "cuda:0", "repeats": 30, "only": [names],
//                        "matrices": [[m, n], …], "rest": [[n], …]}
//   its answers         {"name": …, "like": "muon", "rest"?: true, "ours"?: true, "eager_ms": …, "captured_ms"?: …,
//                        "memory_mib": …}; `like` names the entrant that does the same work
//   training request    {"kind": "train", "device": …, "steps": …, "layers": …, "width": …, "heads": …, "kv_heads": …,
//                        "mlp": …, "vocab": …, "batch": …, "context": …, "clip": …}
//   its answers         {"name": …, "step_ms": …, "peak_bytes": …, "first_loss": …, "last_loss": …}
//   other answers       {"name": …, "missing": "reason"} for a peer that could not run; {} after the last answer
// The program inherits our standard error.
class Peers {
 public:
  explicit Peers(const std::string& command);  // run by /bin/sh

  const std::vector<std::string>& names() const { return names_; }

  // Returns what the program measured. Calls `missing(name, reason)` for each peer that could not run.
  using Missing = std::function<void(const std::string& name, const std::string& reason)>;
  std::vector<StepTime> measure(const ShapeSet& shapes, at::Device device, int64_t repeats,
                                const std::vector<std::string>& only, const Missing& missing);
  std::vector<TrainingTime> measure(const TrainingOptions& options, at::Device device, const Missing& missing);

 private:
  nlohmann::json read();
  void write(const nlohmann::json& line);
  std::vector<nlohmann::json> ask(const nlohmann::json& job, const Missing& missing);

  // The running program. The destructor closes its input and waits until it ends.
  struct Child {
    explicit Child(const std::string& command);
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    int socket = -1;
    pid_t process = -1;
  };

  std::string command_, received_;
  Child child_;
  std::vector<std::string> names_;
};

}  // namespace prism::bench
