#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// A condition of a rule besides name and dimensions.
//   Any         none
//   Depthwise   a convolution (channels, 1, k…) with one filter for each channel: no matrix mixes them
//   LastMatrix  the last matrix of the model, in order of definition, if nothing in the model can take its output: no
//               other parameter (a 1 × n head included) has as many columns as it has rows, and no norm has that size.
//               It is then the output layer, whatever its name
enum class Only { Any, Depthwise, LastMatrix };

inline constexpr const char* kHiddenMatrix = "hidden matrix";  // label of the rule that catches what no other does

// One routing rule: parameters whose name and shape match are optimized with these options.
struct Rule {
  std::string label;           // its name in the table: "embedding", kHiddenMatrix, …
  std::string pattern = ".*";  // an ECMAScript regular expression, searched in the name
  int64_t min_dimensions = 0;  // counted without sizes of 1: a (1, n) matrix has one
  int64_t max_dimensions = INT64_MAX;
  Only only = Only::Any;
  std::string required = {};  // a name that the user gave: an error if the rule matches nothing
  std::shared_ptr<const Options> options;
};

// Ordered rules: the first match wins, and a parameter without a match is an error.
using Rules = std::vector<Rule>;

// Sends everything with fewer than two dimensions (norms, biases), output heads, embeddings and tables of positions,
// state matrices of recurrences, depthwise convolutions and the output layer to `rest`; hidden matrices to `matrices`.
// Heads are recognized by name (lm_head, classifier, …) and by position (Only::LastMatrix), unless `heads` lists them
// as names of parameters or modules; {} means that there are none.
Rules default_rules(const Options& matrices, const Options& rest,
                    const std::optional<std::vector<std::string>>& heads = std::nullopt);

// Removes the prefixes that PyTorch's wrappers add to parameter names: `module.` (DistributedDataParallel),
// `_orig_mod.` (torch.compile), `_fsdp_wrapped_module.` and `_checkpoint_wrapped_module.`, anywhere in a name. A model
// then has the same names wrapped and plain. First the wrappers around the whole model are removed. If removing the
// others would make two names equal, they stay: the model has a submodule called `module`.
std::vector<std::string> plain_names(std::vector<std::string> names);

// The rule of each parameter. Patterns are searched in plain names.
class Routing {
 public:
  struct Line {
    std::string name;
    std::vector<int64_t> shape;
    size_t rule;
  };

  Routing(Rules rules, const Parameters& parameters);

  const Rules& rules() const { return rules_; }
  const std::vector<Line>& lines() const { return lines_; }

  // Prints the table to look at before training: one line per parameter, then the number of parameters and elements of
  // each optimizer.
  friend std::ostream& operator<<(std::ostream& stream, const Routing& routing);

 private:
  Rules rules_;
  std::vector<Line> lines_;
};

}  // namespace prism
