#pragma once

#include <torch/custom_class.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "prism/optim/engine.h"

namespace prism {

using Tensors = std::vector<Tensor>;
using Names = std::vector<std::string>;
using OptionalTensor = std::optional<Tensor>;
using Fields = c10::Dict<std::string, Tensor>;       // the state of a parameter
using Values = c10::Dict<std::string, c10::IValue>;  // as Python has them

// The class behind prism_optim.Optimizer. Compares what Python tells it with what it holds, and acts on the difference
// only.
class PythonEngine : public torch::CustomClassHolder {
 public:
  // Makes the groups hold these parameters under these optimizers; new ones have default options. No names, or one for
  // each parameter. `comm_dtype` is the type in which updates are sent: "bfloat16", or none for their own. `sharding` is
  // empty, or describes how several processes share parameters:
  //   {"everyone": group, "layouts": [{"group", "shape", "boxes": [[[begin, …], [size, …]], …]}, …],
  //    "of": [[number of a layout or −1, …], …]}
  // where a group is the name of a process group, boxes are what its ranks hold, and "of" is for each group's parameters.
  // Returns the places that tensors no longer held had among all parameters, if their state had its initial values.
  // Sharding a model after its optimizer was created replaces all parameters: nobody needs the state of the old ones.
  std::vector<int64_t> set_groups(const Names& optimizers, const std::vector<Tensors>& parameters,
                                  const std::vector<Names>& names, const std::optional<std::string>& comm_dtype,
                                  const std::string& sharding);

  // The names of each group's parameters: as they were given, without wrappers such as `module.`, or parameter.0,
  // parameter.1, … counted over all groups.
  std::vector<Names> names() const;

  // With `capturable` learning rate and γ are numbers on the GPU, which schedulers write into. A number put or loaded in
  // their place is written to where a graph may already read it. Returns those that are there since this call.
  Fields place_numbers(int64_t index, const Values& numbers);

  // All options that are numbers, in the order of the table. A learning rate on the GPU is not read here, nor is γ where
  // the step may be captured.
  void set_numbers(int64_t index, const std::vector<c10::IValue>& numbers, bool capturable);

  // The other options, as an object.
  void set_options(int64_t index, const std::string& values);

  // Returns true if there is state that was not there at the last take_state, or was stored elsewhere.
  bool make_state();

  // Views of the state of all parameters.
  std::vector<Fields> state() const;

  // Takes over the state that others hold of all parameters. One of which nothing is held starts anew. After `restore`
  // it is the state here that holds.
  void take_state(const std::vector<Fields>& held);

  void step(const OptionalTensor& found_inf, const OptionalTensor& grad_scale);

  // The cuts of all parameters' state: [{field: [shape of the whole, kept apart from its parameter's shards]}, …].
  std::string cut_fields() const;

  // A field that is kept apart, whole. Every process of its parameter must ask for it.
  Tensor whole_state(int64_t place, const std::string& field) const;

  // The place among all parameters of each saved one; −1 if there is no such parameter.
  std::vector<int64_t> places(const std::string& groups) const;

  // A table of who shapes which matrix.
  std::string plan() const;
  void check_plan() { engine_.check_plan(); }
  int64_t bytes_sent() const { return engine_.bytes_sent(); }

  Tensor skipped() const;

  // Makes an engine that continues this count of skipped steps and holds no groups yet: what a pickled one becomes.
  static c10::intrusive_ptr<PythonEngine> after(const Tensor& skipped);

  // Takes over what another optimizer saved: groups of {"optimizer", "params", "param_names", options…}, the state of
  // each of their parameters, and of the counts of skipped steps the first that is there. Parameters are matched by name
  // where both sides have names, else by position; torch.distributed.checkpoint, whose `params` are words, has already
  // arranged them.
  // Returns the saved group that each group here came from; of each saved parameter its place here and the names of
  // its fields, before and after; and which options that were asked for here it changed.
  std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<Names>, std::string> restore(
      const std::string& groups, const std::vector<Values>& states, const std::vector<OptionalTensor>& skipped,
      bool mixed);

  // Names, and for each six tensors: singular values, SNR, gain, theory, ‖W‖, ‖O‖.
  std::tuple<Names, Tensors> spectra() const;

 private:
  // A group as Python described it.
  struct Given {
    std::unique_ptr<Options> options;
    Names names;
    bool restored = false;  // its numbers come from a saved state
  };

  static Tensor number(const OptionalTensor& given) { return given ? given->reshape({}) : Tensor(); }

  bool holds(size_t index, const std::string& optimizer, const Tensors& parameters) const;

  // The names of all parameters, as names() has them, of groups that are complete.
  static std::vector<Names> checked_names(const Names& optimizers, const std::vector<Tensors>& parameters,
                                          const std::vector<Names>& names);

  template <class Function>
  void each_parameter(const Function& function) const {
    for (size_t g = 0; g < engine_.groups().size(); ++g) {
      for (size_t p = 0; p < engine_.groups()[g].parameters.size(); ++p) function(g, p);
    }
  }

  // Adds the names of the fields of all parameters, those that another process keeps included.
  void add_fields(std::vector<Names>& fields) const;

  void replace(int64_t index, std::unique_ptr<Options> options);

  // Saved groups as a Snapshot has them: {"optimizer", "options", "parameters"}, the last as names.
  Json saved_header(const Json& saved) const;

  // Adds "<option>=<after> in place of <before>" for each option, numbers aside, that was asked for and is another now.
  static void note_changes(std::set<std::string>& changes, const Options& before, const Options& after, bool mixed);

  // The layouts of each group's parameters, from the description that set_groups takes.
  std::vector<std::vector<LayoutPtr>> layouts_of(const std::string& sharding, bool in_bfloat16);
  std::shared_ptr<Exchange> exchange(const std::string& group);

  Engine engine_;
  std::map<std::string, std::shared_ptr<Exchange>> exchanges_;  // by the name of the process group
  std::vector<Given> given_;                                    // of each group
  bool is_shown_ = false;                                       // Python has views of the state as it is
  bool is_restored_ = false;                                    // Python's copy is older than the state here
  Tensor last_scale_;      // that gradients were divided by in the last step; undefined if they were not
  Tensor skipped_before_;  // of the engine that this one is a copy of, until there are parameters
};

}  // namespace prism
