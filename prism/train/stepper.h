#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prism/dist/gradient_sum.h"
#include "prism/dist/weight_gather.h"
#include "prism/io/config.h"
#include "prism/model/qwen2.h"
#include "prism/optim/mixed.h"
#include "prism/train/metrics.h"
#include "prism/train/norms.h"
#include "prism/train/step_graph.h"

namespace prism::train {

// A model and its optimizer. One step computes loss and gradients on the given tokens in `train.accumulate` passes,
// clips the gradients' joint norm to `train.clip` and runs the optimizer with rates = peak · factor.
//
// The guard: if the loss or the gradient norm is not finite, the step changes neither weights nor optimizer, and the
// record names the operation that caused it (culprit). The device decides this, so the host never waits within a step,
// and on a GPU the whole step is captured in a CUDA graph (`train.graph`) if the optimizer's kernels allow it.
//
// With several processes, each works on its micro-batches of the step. Gradients, loss and norms are those of the whole
// step, equal on all processes.
class Stepper {
 public:
  Stepper(const io::Config& config, model::Qwen2 model,
          std::shared_ptr<dist::Communicator> processes = dist::one_process());

  // Begins a step on `train.batch` rows of `train.context` + 1 tokens. Copies the tokens before it returns. `stop` asks
  // all processes to stop after it.
  void launch(std::span<const int64_t> tokens, double factor, bool stop = false);

  // Waits for the step. Returns loss, lr, aux_lr, grad_norm, norms, skipped, culprit and the timings of its record.
  StepRecord finish();

  void release_gradients();  // unless a graph owns them

  const model::Qwen2& model() const { return model_; }
  model::Qwen2& model() { return model_; }
  const Mixed& optimizer() const { return optimizer_; }
  Mixed& optimizer() { return optimizer_; }
  int64_t context() const { return context_; }
  int64_t batch() const { return batch_; }
  dist::Communicator& processes() const { return *processes_; }
  bool is_owned() const { return !parts_.empty(); }  // each part of a parameter is stepped by one process only
  const std::vector<dist::Part>& parts() const { return parts_; }
  bool stop_requested() const { return stop_requested_; }  // by any process, at the last step
  int64_t pass_sequences() const { return batch_ / batches_.all; }
  int64_t step_tokens() const { return batch_ * context_; }
  bool is_graph() const { return graph_->is_graph(); }
  bool will_capture() const { return may_capture_ && !is_graph(); }  // in the next step

 private:
  void set_rates(double factor);
  void work();
  Tensor loss_and_stop(const std::vector<Tensor>& losses);
  void wait();
  void allow_graph();
  std::string find_culprit() const;
  Tensor clip();

  std::shared_ptr<dist::Communicator> processes_;
  int64_t context_, batch_;
  dist::MicroBatches batches_;
  double clip_;
  bool wants_graph_, may_capture_ = false;
  model::Qwen2 model_;
  std::vector<Tensor> parameters_;
  std::vector<dist::Part> parts_;   // of the parameters; none: every process steps all of them
  std::vector<dist::Part> pieces_;  // of the gradients, whose norms form the joint norm; none: whole gradients
  dist::GradientSum gradients_;
  Mixed optimizer_;
  std::optional<dist::WeightGather> weights_;
  std::vector<double> peak_rates_;
  bool stop_requested_ = false;
  Tensor host_tokens_, tokens_;  // (micro-batches here, sequences, context + 1)
  Tensor stop_;                  // 1 if this process asks all to stop, else 0; on the device
  std::optional<NormMeter> norms_;
  Tensor results_;  // loss, gradient norm, requests to stop and the values of `norms_`, on the device
  std::unique_ptr<StepGraph> graph_;
  StepRecord record_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace prism::train
