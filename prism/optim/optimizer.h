#pragma once

#include <c10/util/Exception.h>  // torch/ordered_dict.h uses it without including it
#include <torch/ordered_dict.h>

#include <filesystem>
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

// The base of every optimizer here, a torch::optim::Optimizer: parameter groups, closures, zero_grad and torch's
// learning-rate schedulers work on it as on torch's own. Groups may carry options of different rules. State exists from
// construction on, so that what is saved never depends on history. A front over Engine, which does the work.
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

  // Makes the state of parameters that came through torch::optim::Optimizer&, and follows parameters that moved. step,
  // load and write_scalars do it too.
  void make_state();

  // State, counters and options, keyed by parameter name: torch::save and torch::load use the archive, the others write
  // safetensors. Loading accepts the parameters in any order; a name, shape, type or optimizer that does not match is
  // named, and nothing is changed.
  void save(torch::serialize::OutputArchive& archive) const override { write_archive(snapshot(), archive); }
  void load(torch::serialize::InputArchive& archive) override { restore(read_archive(archive)); }
  void save_safetensors(const std::filesystem::path& path) const { write_safetensors(snapshot(), path); }
  void load_safetensors(const std::filesystem::path& path) { restore(read_safetensors(path)); }
  Snapshot snapshot() const { return engine().snapshot(); }
  void restore(const Snapshot& snapshot);

  // Writes the learning rates and γ that changed since the last call to where `capturable` keeps them on the GPU.
  // step() does it too; a program that replays a graph of the step calls it before a replay. The graph is captured
  // after a first step, with all gradients in place.
  void write_scalars();

  // Whether the kernels of prism/cuda do the whole step with the gradients that are there: then it can be captured with
  // `capturable`.
  bool can_be_captured() const { return engine().can_be_captured(); }

  // How many steps were cancelled, by a non-finite gradient (`skip_nonfinite`) or by step_if: an int64 number on the
  // device of the first parameter.
  const Tensor& skipped() const { return engine_.skipped(); }

  // The name of each parameter, group by group.
  std::vector<std::vector<std::string>> names() const;

  // The spectra of every matrix with a gradient, from the last step: call it between step() and zero_grad().
  std::vector<MatrixSpectrum> spectra() const { return engine().spectra(); }

  const Options& group_options(size_t group) const;

  // A field of the state of each parameter of a group, as views in the order of the parameters; undefined where a
  // parameter has no such field or is split into parts, which have their own.
  std::vector<Tensor> group_state(size_t group, std::string_view field) const;

 protected:
  explicit Optimizer(std::unique_ptr<Options> defaults);

 private:
  void follow_groups();          // tells the engine which parameters and options the groups have
  const Engine& engine() const;  // refuses groups that have no state yet

  Engine engine_;
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
  }
};

}  // namespace prism
