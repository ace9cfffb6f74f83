#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// One rule of a routing: parameters whose name matches and whose shape fits are optimized with these options.
struct Rule {
  std::string label;           // what the table calls it: "embedding", "hidden matrix", …
  std::string pattern = ".*";  // an ECMAScript regular expression, searched in the name
  int64_t min_dimensions = 0;  // counted without sizes of 1: a (1, n) matrix has one
  int64_t max_dimensions = INT64_MAX;
  std::shared_ptr<const Options> options;
};

// Ordered rules: the first match wins, and a parameter without a match is an error.
using Rules = std::vector<Rule>;

// Embeddings, output heads, and everything with fewer than two dimensions (norms, biases) → `rest`; hidden matrices →
// `matrices`.
Rules default_rules(const Options& matrices, const Options& rest);

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
