#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prism/data/sampler.h"
#include "prism/io/config.h"
#include "prism/model/qwen2.h"
#include "prism/optim/mixed.h"
#include "prism/train/dataset.h"
#include "prism/train/metrics.h"

namespace prism::train {

// A model, its optimizer and its data, and what one step does with them. Everything a step depends on is its number,
// the weights and the optimizer's state; there is no other memory.
//
//   step s = 1, 2, …: the batch of sampler step s − 1, in `accumulate` passes; the joint norm of the gradients,
//   clipped; rates = peak · schedule(s); optimizer.
// The guard: a loss or a gradient norm that is not finite changes neither weights nor optimizer, and the record names
// the first parameter whose gradient is not finite.
class Trainer {
 public:
  Trainer(const io::Config& config, const Dataset& dataset, model::Qwen2 model);

  StepRecord step(int64_t step);  // fills in all but tokens and seconds, which count over the run
  double evaluate() const;        // mean loss over the held-out sequences
  double weight_norm() const;     // joint Frobenius norm of the hidden matrices

  std::vector<MatrixSpectrum> spectra() const { return optimizer_.spectra(); }  // of the last step
  void release_gradients();

  model::Qwen2& model() { return model_; }
  const model::Qwen2& model() const { return model_; }
  Mixed& optimizer() { return optimizer_; }
  const Mixed& optimizer() const { return optimizer_; }
  int64_t step_tokens() const { return batch_ * context_; }

 private:
  double accumulate_gradients(int64_t step, StepRecord& record);
  std::string first_nonfinite() const;
  void set_rates(int64_t step, StepRecord& record);
  Tensor to_device(const std::vector<int64_t>& tokens, int64_t sequences) const;

  int64_t context_, batch_, accumulate_;
  double clip_;
  Schedule schedule_;
  model::Qwen2 model_;
  Mixed optimizer_;
  std::vector<Tensor> parameters_;
  std::vector<double> peak_rates_;
  data::Sampler sampler_;
  data::EvalWindows windows_;
};

// Hash of all names, shapes and weights.
std::string weights_hash(const model::Qwen2& model);

// Bytes of the optimizer's state.
int64_t state_bytes(const Optimizer& optimizer);

}  // namespace prism::train
