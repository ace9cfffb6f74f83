#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prism/optim/bucket.h"
#include "prism/optim/saved_state.h"

namespace prism {

// The spectra of one parameter at the last step (diagnostics.h), and the Frobenius norms of weight and update. For
// stacked matrices (e, m, n) each tensor has the leading dimension e.
struct MatrixSpectrum {
  std::string name;
  Spectrum spectrum;
  Tensor weight_norm;
  Tensor update_norm;  // before scale and learning rate
};

// The optional inputs of a step.
struct StepRequest {
  Tensor apply = {};       // a boolean on any device: false cancels the step and counts it as skipped. Undefined: true
  Tensor found_inf = {};   // a number: anything but 0 cancels the step
  Tensor grad_scale = {};  // gradients are divided by it; undefined: 1
  // Called for each parameter with a gradient once its new weights are written, or launched on a GPU, before the step goes
  // on with others. Not called for parameters with a layout.
  std::function<void(const Tensor& parameter)> written = {};
};

// The scalars of a group's step.
struct StepInputs {
  Tensor lr = {};          // on the host or on the device
  Tensor apply = {};       // a boolean on a device: false cancels the step. Undefined: true
  Tensor grad_scale = {};  // on a device; undefined: 1
  Tensor gamma = {};       // PRISM's γ on the device, for `capturable`; undefined: the γ of the options
};

// Groups of parameters, each with a rule, and everything that a step needs: buckets, state, scalars on the device,
// capture, the guard, loading and saving. prism::Optimizer and the class of prism_optim are front ends: they own
// parameters and options, and pass them on.
class Engine {
 public:
  struct Group {
    const Options* options = nullptr;
    std::vector<Tensor> parameters;
    std::vector<std::string> names;
    std::vector<LayoutPtr> layouts;  // of the parameters, which are this process's parts; none if all are whole
    std::vector<Bucket> buckets;
    std::vector<Tensor> known;  // the parameters the buckets were made for
    // A scalar on the device, for `capturable`: given by a front end, or a copy of the option's value.
    struct DeviceNumber {
      Tensor given, own;
      double written = 0;
      const Tensor& value() const { return given.defined() ? given : own; }
    } lr, gamma;
  };

  const std::vector<Group>& groups() const { return groups_; }
  Group& group(size_t index) { return groups_.at(index); }

  // Sets the parameters of group `index`, which may be one past the last. Parameters without a name are called
  // parameter.<number>. The options must outlive the group or be replaced by another call. `layouts` are those of
  // parameters that are cut over several processes, or whose work these share.
  void set_group(size_t index, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts = {});

  // Sets the processes that skip a step together. Null: this process decides alone.
  void set_guard(std::shared_ptr<Exchange> everyone) { everyone_ = std::move(everyone); }
  void resize(size_t groups) { groups_.resize(groups); }

  // Creates the state of parameters added since the last call, and follows those that moved, changed their type or were
  // removed. Returns the groups whose state tensors are new. Call it after such changes, before anything below.
  std::vector<size_t> make_state();

  // One step: collect → guard → operands → shape → write (step.cpp).
  void step(const StepRequest& request);

  // Copies the learning rates and γ that changed since the last call to the GPU, where `capturable` keeps them.
  void write_scalars();

  // Returns true if the kernels of prism/cuda do the whole step with the present gradients.
  bool can_be_captured() const;

  // The number of steps canceled by a non-finite gradient (`skip_nonfinite`) or by `apply`: an int64 scalar on the
  // device of the first parameter; undefined if there are no parameters.
  const Tensor& skipped() const { return skipped_; }

  // The state of a parameter by field, as views: "momentum", or "split.0.momentum" for a part.
  std::vector<std::pair<std::string, Tensor>> state_of(size_t group, size_t parameter) const;

  // Returns what belongs into a field of state_of(): the value, or this process's part of a whole one.
  Tensor part_of_state(size_t group, size_t parameter, const std::string& name, const Tensor& value) const;

  // Resets the state of one parameter to its initial values.
  void reset_state(size_t group, size_t parameter);

  // Returns true if all state of a parameter that is kept here has its initial values.
  bool has_initial_state(size_t group, size_t parameter) const;

  // A field of a parameter that several processes share: `shape` is that of the whole. With `apart` it is not cut as
  // its parameter is; whole_state() puts it together on all processes of the parameter, which must call it
  // together.
  struct CutField {
    std::string name;
    std::vector<int64_t> shape;
    bool apart;
  };
  std::vector<CutField> cut_fields(size_t group, size_t parameter) const;
  Tensor whole_state(size_t group, size_t parameter, const std::string& name) const;

  // One matrix of the matrix rules, and the process that shapes it.
  struct PlanLine {
    std::string name;
    std::vector<int64_t> shape;   // of the whole
    std::vector<GramSide> sides;  // of the Gram matrices that shaping it forms
    const Layout* layout;         // null: every process shapes the matrices that it holds
    int64_t owner;                // −1 without a layout
    double cost;                  // of shaping it
    std::vector<int64_t> bytes;   // that each rank sends at a step, at most
  };
  std::vector<PlanLine> plan() const;

  // Throws if the processes of a group have different plans. Does nothing if it was called since the plan last changed.
  void check_plan();

  // The bytes that this process has sent to others during steps.
  int64_t bytes_sent() const;

  // The spectra of every matrix with a gradient, from the last step; gradients are divided by `grad_scale`.
  std::vector<MatrixSpectrum> spectra(const Tensor& grad_scale = {}) const;

  // State and options by parameter name. Restoring accepts the parameters in any order and casts state of another
  // floating type. If a name, shape, type or optimizer does not match, it throws an error that names it, and changes
  // nothing. The front end adopts the options that it returns.
  struct Restored {
    std::unique_ptr<Options> options;
    size_t source;  // the saved group
  };
  Snapshot snapshot() const;
  std::vector<Restored> restore(const Snapshot& snapshot, const std::string& who = "load");

 private:
  template <class Function>
  void each_initial(size_t group, size_t parameter, const Function& f) const;

  using Gradients = std::vector<std::vector<Tensor>>;  // of each group; undefined for a parameter without gradient

  Gradients collect() const;
  void agree_on_presence(Gradients& gradients) const;
  Tensor everywhere(const Tensor& ok) const;
  std::vector<std::shared_ptr<Exchange>> exchanges() const;
  static std::vector<int64_t> whole_shape_of(const Group& group, const Bucket::Entry& entry);
  void choose_owners(std::vector<std::vector<Bucket>>& buckets, const std::vector<const Options*>& options,
                     bool keep) const;
  std::pair<bool, Tensor> guard(const Gradients& gradients, const StepRequest& request);
  void check_capture(const Gradients& gradients) const;
  void check_parameters() const;
  void step_group(Group& group, const std::vector<Tensor>& gradients, const StepInputs& inputs,
                  const std::function<void(const Tensor&)>& written);

  std::vector<Group> groups_;
  std::shared_ptr<Exchange> everyone_;
  bool has_begun_ = false;  // a step was taken or state restored: owners keep what they own
  bool plan_is_checked_ = true;
  Tensor skipped_;
  Tensor scratch_;  // memory of the kernels, allocated by the first step that needs it; a captured graph uses it
};

// Takes one step of a bucket in plain ATen: the specification. An undefined gradient leaves its parameter and state
// untouched.
void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs);

}  // namespace prism
