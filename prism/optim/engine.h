#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prism/optim/bucket.h"
#include "prism/optim/saved_state.h"

namespace prism {

// The spectra of one parameter at the last step (diagnostics.h), and the Frobenius norms of weight and update; of
// stacked matrices (e, m, n) each tensor has the leading dimension e.
struct MatrixSpectrum {
  std::string name;
  Spectrum spectrum;
  Tensor weight_norm;
  Tensor update_norm;  // before scale and learning rate
};

// What a caller may add to a step.
struct StepRequest {
  Tensor apply = {};       // a boolean on any device: false changes nothing and counts as skipped. Undefined: true
  Tensor found_inf = {};   // a number: anything but 0 changes nothing
  Tensor grad_scale = {};  // gradients are divided by it; undefined: 1
};

// The numbers of a group's step.
struct StepInputs {
  Tensor lr = {};          // on the host or on the device
  Tensor apply = {};       // a boolean on a device: false changes nothing. Undefined: always apply
  Tensor grad_scale = {};  // on a device; undefined: 1
  Tensor gamma = {};       // PRISM's γ on the device, for `capturable`; undefined: that of the options
};

// Groups of parameters, each under a rule, and all that a step needs: buckets, state, numbers on the device, capture,
// the guard, loading and saving. prism::Optimizer and the class of prism_optim are fronts over it: they own parameters
// and options, and tell it what they hold.
class Engine {
 public:
  struct Group {
    const Options* options = nullptr;
    std::vector<Tensor> parameters;
    std::vector<std::string> names;
    std::vector<Bucket> buckets;
    std::vector<Tensor> known;  // the parameters the buckets were made for
    // Learning rate and γ on the device, for `capturable`: those a front has given, or those of the options as they
    // were last written.
    struct DeviceNumber {
      Tensor given, own;
      double written = 0;
      const Tensor& value() const { return given.defined() ? given : own; }
    } lr, gamma;
  };

  const std::vector<Group>& groups() const { return groups_; }
  Group& group(size_t index) { return groups_.at(index); }

  // Makes group `index`, which may be the next one, hold these parameters. Names may be fewer: the others are called
  // parameter.<number>. The options must outlive the group or be replaced by another call.
  void set_group(size_t index, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names);
  void resize(size_t groups) { groups_.resize(groups); }

  // Makes the state of parameters that came since the last call, and follows those that moved, changed their type or
  // left. Returns the groups whose state lies elsewhere now. Everything below needs it after such changes.
  std::vector<size_t> make_state();

  // One step: collect → guard → operands → shape → write (step.cpp).
  void step(const StepRequest& request);

  // Writes the learning rates and γ that changed since the last call to where `capturable` keeps them on the GPU.
  void write_scalars();

  // Whether the kernels of prism/cuda do the whole step with the gradients that are there.
  bool can_be_captured() const;

  // How many steps were cancelled, by a non-finite gradient (`skip_nonfinite`) or by `apply`: an int64 number on the
  // device of the first parameter; undefined while there is none.
  const Tensor& skipped() const { return skipped_; }

  // The state of parameter p of a group by field, as views: "momentum", or "split.0.momentum" for a part.
  std::vector<std::pair<std::string, Tensor>> state_of(size_t group, size_t parameter) const;

  // Makes the state of one parameter fresh.
  void reset_state(size_t group, size_t parameter);

  // The spectra of every matrix with a gradient, from the last step; gradients are divided by `grad_scale`.
  std::vector<MatrixSpectrum> spectra(const Tensor& grad_scale = {}) const;

  // State and options by parameter name. Restoring accepts the parameters in any order; a name, shape, type or
  // optimizer that does not match is named, and nothing is changed. Numbers of another floating type are cast. The
  // options it returns are for the front to take over.
  struct Restored {
    std::unique_ptr<Options> options;
    size_t source;  // the saved group
  };
  Snapshot snapshot() const;
  std::vector<Restored> restore(const Snapshot& snapshot, const std::string& who = "load");

 private:
  using Gradients = std::vector<std::vector<Tensor>>;  // of each group; undefined where a parameter has none

  Gradients collect() const;
  std::pair<bool, Tensor> guard(const Gradients& gradients, const StepRequest& request);
  void check_capture(const Gradients& gradients) const;
  void check_parameters() const;
  void step_group(Group& group, const std::vector<Tensor>& gradients, const StepInputs& inputs);

  std::vector<Group> groups_;
  Tensor skipped_;
  Tensor scratch_;  // of the kernels, from the first step on that needs it; a graph of the step reads and writes it
};

// One step of a bucket in plain ATen: the specification. An undefined gradient leaves its parameter and state
// untouched.
void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs);

}  // namespace prism
