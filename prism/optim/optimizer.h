#pragma once

#include <c10/util/Exception.h>  // torch/ordered_dict.h uses it without including it
#include <torch/ordered_dict.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/optim/engine.h"

namespace prism {

// Parameters with their names: a model's named_parameters(), a list of pairs, or bare tensors, which are named
// parameter.0, parameter.1, …
class Parameters {
 public:
  Parameters(const torch::OrderedDict<std::string, Tensor>& named);  // implicit: any of the three is accepted
  Parameters(const std::vector<std::pair<std::string, Tensor>>& named);
  Parameters(const std::vector<Tensor>& tensors);

  size_t size() const { return tensors.size(); }
  void add(std::string name, Tensor tensor);

  std::vector<Tensor> tensors;
  std::vector<std::string> names;  // empty for bare tensors

 private:
  friend class Optimizer;
  friend class Mixed;
  Parameters() = default;
};

// The base class of every optimizer here, a torch::optim::Optimizer: parameter groups, closures, zero_grad and torch's
// learning-rate schedulers work as with torch's own. Groups may have options of different rules. State exists from
// construction on, so the set of saved tensors never depends on which steps were taken. Engine does the work.
class Optimizer : public torch::optim::Optimizer {
 public:
  Tensor step(LossClosure closure = nullptr) override;

  // Takes a step if `apply`, a boolean on any device, is true; otherwise only skipped() changes. Does not wait for a
  // flag on a GPU. Calls `written` as StepRequest says.
  void step_if(const Tensor& apply, const std::function<void(const Tensor&)>& written = {});

  // Adds parameters with their own options. The second form is torch's. It hides the inherited one, because torch 2.13
  // replaces options of types it does not know by the defaults: if the group has options, call it on a prism type, not
  // through torch::optim::Optimizer&.
  void add_param_group(const Parameters& parameters, const Options& options);
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Creates the state of parameters that were added through torch::optim::Optimizer&, and follows parameters that moved
  // to another type or device. step, load and write_scalars do it too.
  void make_state();

  // Save and load state, counters and options, keyed by parameter name: torch::save and torch::load use the archive,
  // the others use safetensors. Loading accepts the parameters in any order. If a name, shape, type or optimizer does
  // not match, loading throws an error that names it, and changes nothing.
  void save(torch::serialize::OutputArchive& archive) const override { write_archive(snapshot(), archive); }
  void load(torch::serialize::InputArchive& archive) override { restore(read_archive(archive)); }
  void save_safetensors(const std::filesystem::path& path) const { write_safetensors(snapshot(), path); }
  void load_safetensors(const std::filesystem::path& path) { restore(read_safetensors(path)); }
  Snapshot snapshot() const { return engine().snapshot(); }
  void restore(const Snapshot& snapshot);

  // Copies the learning rates and γ that changed since the last call to the GPU, where `capturable` keeps them. step()
  // does it too. If you replay a graph of the step, call it before each replay. Capture the graph after a first step,
  // with all gradients in place.
  void write_scalars();

  // Returns true if the kernels of prism/cuda do the whole step with the present gradients. It can then be captured
  // with `capturable`.
  bool can_be_captured() const { return engine().can_be_captured(); }

  // The number of steps canceled by a non-finite gradient (`skip_nonfinite`) or by step_if: an int64 scalar on the
  // device of the first parameter.
  const Tensor& skipped() const { return engine_.skipped(); }

  // The name of each parameter, group by group.
  std::vector<std::vector<std::string>> names() const;

  // The spectra of every matrix with a gradient, from the last step: call it between step() and zero_grad().
  std::vector<MatrixSpectrum> spectra() const { return engine().spectra(); }

  const Options& group_options(size_t group) const;

  // A state field of each parameter of a group, as views in the order of the parameters; undefined for a parameter that
  // has no such field or is split into parts, which have their own.
  std::vector<Tensor> group_state(size_t group, std::string_view field) const;

 protected:
  explicit Optimizer(std::unique_ptr<Options> defaults);

 private:
  void follow_groups();          // passes the parameters and options of the groups to the engine
  const Engine& engine() const;  // throws if a group has no state yet

  Engine engine_;
};

// An optimizer whose groups all have options of type O.
template <class O>
class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(const Parameters& parameters, const O& options = {}) : Optimizer(options.copy()) {
    add_param_group(parameters, options);
  }
  explicit OptimizerOf(const std::vector<torch::optim::OptimizerParamGroup>& groups, const O& defaults = {})
      : Optimizer(defaults.copy()) {
    for (const auto& group : groups) add_param_group(group);
  }
};

}  // namespace prism
