#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"
#include "prism/bench/training.h"

namespace prism::bench {

// A program that measures what others do, as bench/peers.py; it runs beside this one, so that both measure in turn.
// Lines of JSON over its standard input and output:
//   it begins with   {"names": ["torch_muon", …]}, the optimizers it knows
//   it is asked      {"kind": "optimizer", "device": "cuda:0", "repeats": 30, "only": [names], "matrices": [[m, n], …],
//                     "rest": [[n], …]}
//   and answers      {"name": …, "like": "muon", "rest"?: true, "ours"?: true, "eager_ms": …, "captured_ms"?: …,
//                     "memory_mib": …}, where `like` names the entrant whose work it does
//   or is asked      {"kind": "train", "device": …, "steps": …, "layers": …, "width": …, "heads": …, "kv_heads": …,
//                     "mlp": …, "vocab": …, "batch": …, "context": …, "clip": …}
//   and answers      {"name": …, "step_ms": …, "peak_bytes": …, "first_loss": …, "last_loss": …}
//   or to either     {"name": …, "missing": "why"}, and after the last answer {}
// Its standard error is ours.
class Peers {
 public:
  explicit Peers(const std::string& command);  // for the shell

  const std::vector<std::string>& names() const { return names_; }

  // What it measured. `missing` hears what could not be, and why.
  using Missing = std::function<void(const std::string& name, const std::string& why)>;
  std::vector<StepTime> measure(const ShapeSet& shapes, at::Device device, int64_t repeats,
                                const std::vector<std::string>& only, const Missing& missing);
  std::vector<TrainingTime> measure(const TrainingOptions& options, at::Device device, const Missing& missing);

 private:
  nlohmann::json read();
  void write(const nlohmann::json& line);
  std::vector<nlohmann::json> ask(const nlohmann::json& job, const Missing& missing);

  // Ends with its input.
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
