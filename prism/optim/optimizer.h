#pragma once

#include <c10/util/Exception.h>  // torch/ordered_dict.h uses it without including it
#include <torch/ordered_dict.h>

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/optim/bucket.h"
#include "prism/optim/options.h"

namespace prism {

// Parameters with their names: a model's named_parameters(), a list of pairs, or bare tensors, which are named
// parameter.0, parameter.1, …
class Parameters {
 public:
  Parameters(const torch::OrderedDict<std::string, Tensor>& named);      // NOLINT: any of the three is accepted
  Parameters(const std::vector<std::pair<std::string, Tensor>>& named);  // NOLINT
  Parameters(const std::vector<Tensor>& tensors);                        // NOLINT

  size_t size() const { return tensors.size(); }
  void add(std::string name, Tensor tensor);

  std::vector<Tensor> tensors;
  std::vector<std::string> names;  // empty for bare tensors

 private:
  friend class Optimizer;
  friend class Mixed;
  Parameters() = default;
};

// Optimizer state as plain values: what save writes and load reads.
struct Snapshot {
  Json header;                                          // groups with options and parameter names, and counters
  std::vector<std::pair<std::string, Tensor>> tensors;  // "state.<parameter>.<field>"
};

// The spectra of one parameter at the last step (diagnostics.h), and the Frobenius norms of weight and update; of
// stacked matrices (e, m, n) each tensor has the leading dimension e.
struct MatrixSpectrum {
  std::string name;
  Spectrum spectrum;
  Tensor weight_norm;
  Tensor update_norm;  // ‖O‖, before scale rule and learning rate
};

// The spectra of a bucket's entries that have a gradient; none for methods without spectra.
std::vector<MatrixSpectrum> bucket_spectra(const Options& options, const Bucket& bucket,
                                           const std::vector<std::string>& names, const std::vector<Tensor>& parameters,
                                           const std::vector<Tensor>& gradients);

// The base of every optimizer here, a torch::optim::Optimizer: parameter groups, closures, zero_grad and torch's
// learning-rate schedulers work on it as on torch's own. Groups may carry options of different optimizers. State exists
// from construction on (for groups added later: from the next step, save or load on), so that what is saved never
// depends on history.
class Optimizer : public torch::optim::Optimizer {
 public:
  Tensor step(LossClosure closure = nullptr) override;

  // The same where `apply`, a boolean on any device, is true; otherwise nothing changes but skipped(). A flag on a GPU
  // is not waited for.
  void step_if(const Tensor& apply);

  // Adds parameters with their own options. The second form is torch's; it hides the inherited one because torch 2.13
  // replaces options of types it does not know by the defaults: call it on a prism type, not through
  // torch::optim::Optimizer&, when the group has options.
  void add_param_group(const Parameters& parameters, const Options& options);
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // State, counters and options, keyed by parameter name: torch::save and torch::load use the archive, the others write
  // safetensors. Loading accepts the parameters in any order; a name, shape, type or optimizer that does not match is
  // named, and nothing is changed.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  void save_safetensors(const std::filesystem::path& path) const;
  void load_safetensors(const std::filesystem::path& path);
  Snapshot snapshot() const;
  void restore(const Snapshot& snapshot);

  // Writes the learning rates and γ that changed since the last call to where `capturable` keeps them on the GPU.
  // step() does it too; a program that replays a graph of the step calls it before a replay. The graph is captured
  // after a first step, with all gradients in place.
  void write_scalars();

  // Whether the kernels of prism/cuda do the whole step with the gradients that are there: then it can be captured with
  // `capturable`.
  bool can_be_captured() const;

  // How many steps were cancelled, by a non-finite gradient (`skip_nonfinite`) or by step_if: an int64 number on the
  // device of the first parameter.
  const Tensor& skipped() const { return skipped_; }

  // The name of each parameter, group by group.
  std::vector<std::vector<std::string>> names() const;

  // The spectra of every matrix with a gradient, from the last step: call it between step() and zero_grad().
  std::vector<MatrixSpectrum> spectra() const;

  const Options& group_options(size_t group) const;

  // A field of the state of each parameter of a group, as views in the order of the parameters; undefined where a
  // parameter has no such field or is split into parts, which have their own.
  std::vector<Tensor> group_state(size_t group, std::string_view field) const;

 protected:
  explicit Optimizer(std::unique_ptr<Options> defaults);

 private:
  // A number as it was last written to the device.
  struct DeviceNumber {
    Tensor value;
    double written = 0;
  };
  struct Group {
    std::vector<std::string> names;
    std::vector<Bucket> buckets;
    DeviceNumber lr, gamma;
  };

  void sync() const;  // makes the state of parameters that came since the last call, and follows those that moved
  std::vector<std::vector<Tensor>> gradients() const;
  Tensor finite_flag(const std::vector<std::vector<Tensor>>& gradients) const;
  void check_capture(const std::vector<std::vector<Tensor>>& gradients) const;
  void advance(const std::vector<std::vector<Tensor>>& gradients, Tensor apply);
  void step_group(const Options& options, std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs);

  mutable std::vector<Group> groups_;
  mutable Tensor skipped_;
  Tensor workspace_;  // of the kernels, from the first step on that needs it
};

// An optimizer whose groups all carry options of type O.
template <class O>
class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(const Parameters& parameters, const O& options = {}) : Optimizer(options.copy()) {
    add_param_group(parameters, options);
  }
  explicit OptimizerOf(const std::vector<torch::optim::OptimizerParamGroup>& groups, const O& defaults = {})
      : Optimizer(defaults.copy()) {
    for (const auto& group : groups) add_param_group(group);
    names();  // makes the state
  }
};

}  // namespace prism
