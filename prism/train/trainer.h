#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prism/data/sampler.h"
#include "prism/train/dataset.h"
#include "prism/train/stepper.h"

namespace prism::train {

// Trains a model on a dataset. A step depends only on its number, the weights and the optimizer's state. Step s = 1, 2,
// … trains on the batch of sampler step s − 1 with rates = peak · schedule(s).
class Trainer : public Stepper {
 public:
  Trainer(const io::Config& config, const Dataset& dataset, model::Qwen2 model,
          std::shared_ptr<dist::Communicator> processes = dist::one_process());

  // Takes one step. The run adds tokens and seconds to the record. `stop` asks all processes to stop after this step.
  StepRecord step(int64_t step, bool stop = false);
  double evaluate() const;     // mean loss over the held-out sequences
  double weight_norm() const;  // joint Frobenius norm of the hidden matrices

  // The spectra of the last step and the whole state of the optimizer, on rank 0. All processes call them.
  std::vector<SpectraLine> spectra(int64_t step) const;
  Snapshot optimizer_state() const;
  int64_t state_bytes() const;  // of all processes together; all of them call it

  int64_t eval_sequences() const { return windows_.count(); }

 private:
  struct Batch {
    int64_t step = 0;  // 0: none
    std::vector<int64_t> tokens;
    std::string hash;
  };
  void read(int64_t step, Batch& batch) const;

  Schedule schedule_;
  data::Sampler sampler_;
  data::EvalWindows windows_;
  Batch next_;  // read while the device works on the step before it
};

// Returns the hash of all names, shapes and weights.
std::string weights_hash(const model::Qwen2& model);

// The number of bytes of the optimizer's state in this process.
int64_t state_bytes(const Optimizer& optimizer);

}  // namespace prism::train
