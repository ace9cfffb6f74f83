#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prism/linalg/diagnostics.h"
#include "prism/optim/schedule.h"
#include "prism/optim/state.h"

namespace prism {

using Json = nlohmann::json;

enum class StateType { Auto, Float32, Float64, BFloat16 };

enum class ScaleRule;
enum class Normalize;
enum class CovarianceKind;

// How a tensor of more than two dimensions becomes matrices.
//   Auto     three dimensions are a batch (stacked experts), four and more are a convolution, flattened
//   Flatten  (out, in, k…) → (out, in·k…)
//   Batch    (…, m, n): a matrix for each leading index
enum class Fold { Auto, Flatten, Batch };

// One line of an options table. The table drives JSON, checking of names and types, printing, documents and the Python
// signatures.
struct Option {
  std::string name;
  std::string type;  // "number", "integer", "boolean", "integers", "pair", "coefficients", "schedule" or the words
                     // allowed: "auto|left|…"
  std::string doc;
  std::function<Json()> get;
  std::function<void(const Json&)> set;
};

// An optimizer: its options, its state fields and one direction function on a bucket of equally shaped parameters. What
// is common to all of them (the loop, decay, learning rate, the write to the weights, saving and loading) exists once,
// around this class:
//   G ← gradient (−gradient with `maximize`);  U = direction(G, state);  W ← (1 − lr·weight_decay)·W − lr·U
class Options : public torch::optim::OptimizerOptions {
 public:
  // The lower-case name of the optimizer: "prism", "adamw", …
  virtual std::string name() const = 0;

  // The state of one parameter of this shape. For matrix methods the shape is that of its matrices, (m, n) or
  // (e, m, n).
  virtual std::vector<Field> fields(at::IntArrayRef shape) const = 0;

  // The update before learning rate, for G (B, shape…) in float32 or float64; advances the state in place. G is
  // read-only.
  virtual Tensor direction(const Tensor& G, State& state) const = 0;

  // Which parameters of a bucket the step to come leaves as they are, undecayed, while it advances their state:
  // booleans (B). Undefined: none.
  virtual Tensor rests(const State& /*state*/) const { return {}; }

  // Refuses impossible settings.
  virtual void check() const;

  // Matrix methods take matrices only, folded and split; the others take any shape.
  virtual bool takes_matrices() const { return false; }

  // Torch's Adam, Adagrad and RMSprop add weight_decay·W to the gradient instead of decaying W.
  virtual bool couples_decay() const { return false; }

  // Whether the rule with these settings reads nothing on the host, so that a graph of the step is the step.
  virtual bool can_be_captured() const { return false; }

  // The spectra behind the last direction of a bucket of one, from its gradient and its state after the step; none for
  // elementwise methods.
  virtual std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const;

  // Replaces defaults that are others inside Mixed; what was set stays.
  virtual void use_mixed_defaults() {}

  virtual std::vector<Option> table();

  Json to_json() const;
  void from_json(const Json& values);  // unknown names and wrong types are refused by name; then checks
  std::unique_ptr<Options> copy() const;

  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void set_capturable(bool capturable) { capturable_ = capturable; }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  double lr() const { return lr_; }
  double weight_decay() const { return weight_decay_; }
  bool maximize() const { return maximize_; }
  bool skip_nonfinite() const { return skip_nonfinite_; }
  bool master_weights() const { return master_weights_; }
  StateType state_dtype() const { return state_dtype_; }
  bool capturable() const { return capturable_; }

 protected:
  Options(double lr, double weight_decay) : lr_(lr), weight_decay_(weight_decay) {}

  double lr_;
  double weight_decay_;
  bool maximize_ = false;
  bool skip_nonfinite_ = false;
  bool master_weights_ = false;
  StateType state_dtype_ = StateType::Auto;
  bool capturable_ = false;
};

// Gives a concrete options struct its chainable setters: PrismOptions(0.02).gamma(2).weight_decay(0.1).
template <class Self, class Base = Options>
class OptionsOf : public Base {
 public:
  using Base::lr, Base::weight_decay, Base::maximize, Base::skip_nonfinite, Base::master_weights, Base::state_dtype,
      Base::capturable;

  Self& lr(double value) { return this->lr_ = value, self(); }
  Self& weight_decay(double value) { return this->weight_decay_ = value, self(); }
  Self& maximize(bool value) { return this->maximize_ = value, self(); }
  Self& skip_nonfinite(bool value) { return this->skip_nonfinite_ = value, self(); }
  Self& master_weights(bool value) { return this->master_weights_ = value, self(); }
  Self& state_dtype(StateType value) { return this->state_dtype_ = value, self(); }
  Self& capturable(bool value) { return this->capturable_ = value, self(); }

  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }

 protected:
  using Base::Base;
  Self& self() { return static_cast<Self&>(*this); }
};

// A chainable option of type T: `options.name(value)` sets, `options.name()` reads. Used inside a class that has
// `self()`.
#define PRISM_OPTION(Self, T, name, ...)    \
 public:                                    \
  Self& name(T value) {                     \
    name##_ = std::move(value);             \
    return this->self();                    \
  }                                         \
  const T& name() const { return name##_; } \
                                            \
 private:                                   \
  T name##_ __VA_ARGS__

}  // namespace prism
