#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// What a rule asks of a parameter beside its name and dimensions.
//   Any         nothing
//   Depthwise   a convolution (channels, 1, k…) with a filter of its own for each channel: no matrix mixes them
//   LastMatrix  the last matrix of the model, in order of definition, if nothing in the model takes what it gives: its
//               rows are no other parameter's columns, nor the size of a norm. An output layer, whatever its name
enum class Only { Any, Depthwise, LastMatrix };

// One rule of a routing: parameters whose name matches and whose shape fits are optimized with these options.
struct Rule {
  std::string label;           // what the table calls it: "embedding", "hidden matrix", …
  std::string pattern = ".*";  // an ECMAScript regular expression, searched in the name
  int64_t min_dimensions = 0;  // counted without sizes of 1: a (1, n) matrix has one
  int64_t max_dimensions = INT64_MAX;
  Only only = Only::Any;
  std::string required = {};  // what someone asked for by this name: an error where the rule matches nothing
  std::shared_ptr<const Options> options;
};

// Ordered rules: the first match wins, and a parameter without a match is an error.
using Rules = std::vector<Rule>;

// Everything with fewer than two dimensions (norms, biases), output heads, embeddings and tables of positions, state
// matrices of recurrences, depthwise convolutions and the output layer → `rest`; hidden matrices → `matrices`.
// Heads are known by name (lm_head, classifier, …) and by place (Only::LastMatrix); `heads`, names of parameters or
// modules, says instead which they are. None: {}.
Rules default_rules(const Options& matrices, const Options& rest,
                    const std::optional<std::vector<std::string>>& heads = std::nullopt);

// Parameter names without what PyTorch's wrappers put into them: `module.` (DistributedDataParallel), `_orig_mod.`
// (torch.compile), `_fsdp_wrapped_module.` and `_checkpoint_wrapped_module.`, anywhere in a name. A model then has the
// same names wrapped and plain. Names that would become equal stay as they are, once wrappers around the whole model
// are off: someone called a submodule `module`.
std::vector<std::string> plain_names(std::vector<std::string> names);

// Which rule each parameter takes. Patterns are searched in plain names.
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

  // The table to look at before training: one line per parameter, then the number of parameters and elements each
  // optimizer has.
  friend std::ostream& operator<<(std::ostream& stream, const Routing& routing);

 private:
  Rules rules_;
  std::vector<Line> lines_;
};

}  // namespace prism
