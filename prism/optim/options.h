#pragma once

#include <torch/optim/optimizer.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prism/linalg/diagnostics.h"
#include "prism/optim/option_types.h"
#include "prism/optim/ownership.h"
#include "prism/optim/state.h"

namespace prism {

struct KernelRule;
struct Momentum;
class Options;

// The numbers that an option accepts.
struct Range {
  const char* words = nullptr;  // for the error message; nullptr: any value
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;

  bool holds(double value) const;
};
inline constexpr Range kAny = {};
inline constexpr Range kNotNegative = {"0 or more"};
inline constexpr Range kPositive = {.words = "more than 0", .open_low = true};
inline constexpr Range kFraction = {.words = "from 0 to below 1", .high = 1, .open_high = true};
inline constexpr Range kUnit = {.words = "from 0 to 1", .high = 1};
inline constexpr Range kCount = {.words = "1 or more", .low = 1};

// One line of an options table. The table drives JSON, the checks of names, types and ranges, configuration keys, the
// documentation and the Python signatures.
struct Option {
  std::string name;
  // "number", "integer", "boolean", "integers", "pair", "coefficients", "schedule", or the allowed words: "auto|left|…"
  std::string type;
  std::string doc;
  Range range;

  Json get(const Options& options) const { return read_(place(options)); }
  void set(Options& options, const Json& value) const;
  std::vector<double> numbers(const Options& options) const { return numbers_(place(options)); }

 private:
  friend class Options;
  const void* place(const Options& options) const;

  std::ptrdiff_t offset_ = 0;  // of the member, from the start of its Options
  Json (*read_)(const void*) = nullptr;
  bool (*write_)(void*, const Json&) = nullptr;  // returns false for a value of another type
  std::vector<double> (*numbers_)(const void*) = nullptr;
};

// Turns a parameter into matrices: the rows of each part of a fused projection, and the folding of more dimensions.
struct Folding {
  at::IntArrayRef split;
  Fold fold = Fold::Auto;
};

// The input of `direction`. Rules with momentum have T, and the innovation D = G − M if they need it. For the others T
// is the gradient.
struct Operands {
  Tensor T, D = {};
};

// A rule: its options, its state fields and the update of a bucket of equally shaped parameters. The engine does what
// all rules share: the loop, decay, learning rate, the write to the weights, saving and loading.
//   G ← gradient (−gradient with `maximize`);  X = operands(G);  U = direction(X);  W ← (1 − lr·weight_decay)·W − lr·U
class Options : public torch::optim::OptimizerOptions {
 public:
  // The lower-case name of the rule: "prism", "adamw", …
  virtual std::string name() const = 0;

  // The state of one parameter of this shape. For matrix rules this is the shape of its matrices, (m, n) or (e, m, n).
  virtual std::vector<Field> fields(at::IntArrayRef shape) const = 0;

  // Advances the fields marked `in_operands` in place, element by element, and returns the input of `direction`. G
  // (B, shape…), which may be a part of each matrix, is float32 or float64 and read-only.
  virtual Operands operands(const Tensor& G, State& state) const;

  // Returns the update before the learning rate, from whole matrices. Advances the rest of the state in place, and of
  // the fields marked `in_operands` reads only numbers.
  virtual Tensor direction(const Operands& operands, State& state) const = 0;

  // The number of tensors in `operands`, at most.
  virtual int64_t operand_count() const { return 1; }

  // The sides of the Gram matrices that `direction` forms for a matrix (…, m, n), which determine its cost: the short one
  // unless a rule says otherwise.
  virtual std::vector<GramSide> gram_sides(at::IntArrayRef shape) const;

  // Marks the parameters of a bucket whose weights the next step leaves unchanged, without decay, while it advances
  // their state: booleans (B). Undefined: none.
  virtual Tensor rests(const State& state) const;

  // Matrix rules take only matrices, folded and split; the others take any shape.
  virtual std::optional<Folding> folding() const { return std::nullopt; }
  bool takes_matrices() const { return folding().has_value(); }

  // The momentum settings; none for rules without momentum.
  virtual std::optional<Momentum> momentum_rule() const;

  // Torch's Adam, Adagrad and RMSprop add weight_decay·W to the gradient instead of decaying W.
  virtual bool couples_decay() const { return false; }

  // The description of this rule for the kernels of prism/cuda (kernel_rule.h); none if they do not support these
  // settings.
  virtual std::unique_ptr<KernelRule> kernel_rule() const;

  // Returns true if a step can be captured into a graph: the kernels support it and read nothing from the host.
  bool can_be_captured() const;

  // The spectra of the last direction of a bucket with one entry, from its gradient and its state after the step; none
  // for elementwise rules.
  virtual std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const;

  // Throws if a setting is impossible. The base checks the ranges of numbers; rules check combinations.
  virtual void check() const;

  // Replaces the defaults that differ inside Mixed. Options that were set stay.
  virtual void use_mixed_defaults() {}

  // The options that every rule has.
  virtual const double& lr() const = 0;
  virtual const double& weight_decay() const = 0;
  virtual const bool& maximize() const = 0;
  virtual const bool& skip_nonfinite() const = 0;
  virtual const StateType& state_dtype() const = 0;
  virtual const bool& master_weights() const = 0;
  virtual const bool& capturable() const = 0;
  virtual void set_capturable(bool capturable) = 0;

  const std::vector<Option>& table() const { return table_; }
  const Option* find(std::string_view option) const;
  Json to_json() const;
  void set_values(const Json& values);  // refuses unknown names and wrong types by name
  void from_json(const Json& values);   // the same, then calls check()
  std::unique_ptr<Options> copy() const;

  double get_lr() const override { return lr(); }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 protected:
  // Adds an option to the table and returns the initial value of its member.
  template <class T>
  T declare(const T& member, const char* option, T initial, Range range, const char* doc);

  // Changes the help of weight_decay in the table to that of coupled decay.
  void document_coupled_decay();

  void mark_set(const char* option) { set_.emplace_back(option); }
  bool is_set(std::string_view option) const;

 private:
  friend struct Option;

  std::vector<Option> table_;
  std::vector<std::string> set_;  // options that were set explicitly
};

// Declares an option: `options.name(value)` sets it, `options.name()` reads it. Use it inside a class that has `Self`
// and `self()`.
#define PRISM_OPTION_AS(specifier, T, option, initial, range, doc) \
 public:                                                           \
  Self& option(T value) {                                          \
    this->mark_set(#option);                                       \
    option##_ = std::move(value);                                  \
    return this->self();                                           \
  }                                                                \
  const T& option() const specifier { return option##_; }          \
                                                                   \
 private:                                                          \
  T option##_ = this->template declare<T>(option##_, #option, initial, range, doc)

#define PRISM_OPTION(T, option, initial, range, doc) PRISM_OPTION_AS(, T, option, initial, range, doc)

// The base class of every rule's options: the options that all rules have, and code that needs the derived type.
// Setters can be chained: PrismOptions(0.02).gamma(2).weight_decay(0.1). A learning rate becomes options implicitly, as
// with torch's.
template <class Whole>
class OptionsOf : public Options {
 public:
  using Self = Whole;
  Self& self() { return static_cast<Self&>(*this); }

  PRISM_OPTION_AS(override, double, lr, 0, kNotNegative, "learning rate");
  PRISM_OPTION_AS(override, double, weight_decay, 0, kNotNegative, "weight decay λ, decoupled: W ← W(1 − lr·λ)");
  PRISM_OPTION_AS(override, bool, maximize, false, kAny, "climb instead of descend");
  PRISM_OPTION_AS(override, bool, skip_nonfinite, false, kAny,
                  "a step with a non-finite gradient changes nothing and is counted, without waiting for the device");
  PRISM_OPTION_AS(override, StateType, state_dtype, StateType::Auto, kAny,
                  "type of the momenta; auto is float32, float64 for float64 weights");
  PRISM_OPTION_AS(override, bool, master_weights, false, kAny, "keep float32 copies of 16-bit weights");
  PRISM_OPTION_AS(override, bool, capturable, false, kAny,
                  "keep the learning rate and γ on the GPU, where a CUDA graph of the step reads them at every replay");

 public:
  void set_lr(double value) override { lr_ = value; }
  void set_capturable(bool value) override { capturable_ = value; }
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }

 protected:
  OptionsOf(double lr, double weight_decay) {
    lr_ = lr;
    weight_decay_ = weight_decay;
  }
};

template <class T>
T Options::declare(const T& member, const char* option, T initial, Range range, const char* doc) {
  using Type = OptionType<T>;
  Option line;
  line.name = option;
  line.type = Type::name();
  line.doc = doc;
  line.range = range;
  line.offset_ = reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(this);
  line.read_ = [](const void* place) { return Type::write(*static_cast<const T*>(place)); };
  line.write_ = [](void* place, const Json& value) {
    if (!Type::accepts(value)) return false;
    *static_cast<T*>(place) = Type::read(value);
    return true;
  };
  line.numbers_ = [](const void* place) { return Type::numbers(*static_cast<const T*>(place)); };
  table_.push_back(std::move(line));
  return initial;
}

}  // namespace prism
