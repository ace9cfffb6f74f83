#include "prism/optim/routing.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <regex>

#include "prism/io/spelling.h"

namespace prism {
namespace {

// Heads: a name used for nothing else counts anywhere; a common name counts only outside numbered blocks.
constexpr const char* kHeads = R"((^|\.)((?!conv_)(\w+_)?head(_\w+)?|embed_out|unembed\w*)\.weight$)"
                               R"(|^((model|decoder|transformer|net|(\w+_)?heads?)\.)*)"
                               R"((fc|fc_out|logits|to_logits|out|output|score|(?!pre_)(\w+_)?classifier)\.weight$)";

// Tables, by the name of the module that holds the weight or of the parameter itself, not of the modules around them:
// the matrices of an `embedder` or of a `position_ffn` are hidden matrices. Patch embeddings, which read the input,
// count as tables.
constexpr const char* kEmbeddings =
    R"((^|\.)((?!un)\w*embed|\w*embeds|\w*embeddings?|(\w+_)?emb|embed_(in|tokens?|words?|types?|segments?|pos|positions?))"
    R"(|\w*embedding_table|wte|wpe|shared|pos|positions?|relative_attention_bias)(\.weight)?$)"
    R"(|(^|\.)((\w+_)?pos(ition(al)?)?(_\w+)?|\w*bias_table|(\w+_)?tokens?|latents)$)"
    R"(|(^|\.)patch_embed\w*\.proj(ection)?\.weight$)";

constexpr const char* kRecurrences = R"((^|\.)(A_log|time_(decay|first|faaaa))$)";

// A pattern for a parameter of this name, or for those of a module of this name.
std::string below(const std::string& name) {
  static const std::regex special(R"([.^$|()\[\]{}*+?\\])");
  return "^" + std::regex_replace(name, special, R"(\$&)") + R"((\.|$))";
}

constexpr std::array<std::string_view, 4> kWrappers = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module"};

// The wrapper prefix ("module." and the like) at the start of a name; empty if there is none.
std::string_view wrapper_of(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  const bool wraps =
      first.size() < name.size() && std::find(kWrappers.begin(), kWrappers.end(), first) != kWrappers.end();
  return wraps ? name.substr(0, first.size() + 1) : std::string_view();
}

std::string without_wrappers(std::string_view name) {
  std::string plain;
  while (!name.empty()) {
    const size_t wrapper = wrapper_of(name).size();
    name.remove_prefix(wrapper);
    if (wrapper > 0) continue;
    const size_t length = std::min(name.find('.'), name.size() - 1) + 1;
    plain += name.substr(0, length);
    name.remove_prefix(length);
  }
  return plain;
}

bool is_depthwise(at::IntArrayRef shape) { return shape.size() >= 3 && shape[0] > 1 && shape[1] == 1; }

bool is_matrix(const std::string& name, at::IntArrayRef shape) {
  return shape.size() == 2 && shape[0] > 1 && shape[1] > 1 && (name == "weight" || name.ends_with(".weight"));
}

// Returns true if a parameter takes vectors of this size: a norm, or a matrix or convolution with that many columns.
bool takes(const std::string& name, at::IntArrayRef shape, int64_t size) {
  if (shape.size() < 2) return shape.size() == 1 && shape[0] == size && !name.ends_with("bias");
  const bool stacked = shape.size() == 3 && !name.ends_with("weight");  // experts; otherwise a convolution
  return shape[1] == size || (stacked && shape[2] == size);
}

std::vector<std::regex> compiled(const Rules& rules) {
  std::vector<std::regex> patterns;
  for (const auto& rule : rules) {
    TORCH_CHECK(rule.options != nullptr, "routing: rule '", rule.label, "' has no options");
    try {
      patterns.emplace_back(rule.pattern);
    } catch (const std::regex_error& error) {
      TORCH_CHECK_VALUE(false, "routing: the pattern of rule '", rule.label, "' is not a regular expression: '",
                        rule.pattern, "'");
    }
  }
  return patterns;
}

// The first rule for this name and shape, ignoring rules for the last matrix; rules.size() if there is none.
size_t first_match(const Rules& rules, const std::vector<std::regex>& patterns, const std::string& name,
                   at::IntArrayRef shape) {
  const auto dimensions = std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; });
  size_t r = 0;
  const auto matches = [&](const Rule& rule) {
    return rule.only != Only::LastMatrix && (rule.only != Only::Depthwise || is_depthwise(shape)) &&
           dimensions >= rule.min_dimensions && dimensions <= rule.max_dimensions &&
           std::regex_search(name, patterns[r]);
  };
  while (r < rules.size() && !matches(rules[r])) ++r;
  return r;
}

// Returns true for a layer with one output: a 1 × n weight that a rule before r took for its shape alone, since no rule
// between them knows its name.
bool has_one_output(const Rules& rules, const std::vector<std::regex>& patterns, const Routing::Line& line,
                    const std::string& name, size_t r) {
  if (line.rule >= r || line.shape.size() != 2 || line.shape[0] != 1 || !name.ends_with("weight")) return false;
  for (size_t between = line.rule + 1; between < r; ++between) {
    if (rules[between].only == Only::Any && std::regex_search(name, patterns[between])) return false;
  }
  return true;
}

// The index of the last matrix that no rule before r took, if nothing takes its output and it is not the only matrix.
// Parameters that earlier rules sent to the optimizer of r (tables, depthwise convolutions) count as taking nothing,
// except for norms and layers with one output.
std::optional<size_t> output_layer(const Rules& rules, const std::vector<std::regex>& patterns,
                                   const std::vector<Routing::Line>& lines, const std::vector<std::string>& names,
                                   size_t r) {
  const auto counts = [&](size_t p) {
    return lines[p].rule > r || lines[p].shape.size() == 1 ||
           rules[lines[p].rule].options->name() != rules[r].options->name() ||
           has_one_output(rules, patterns, lines[p], names[p], r);
  };
  size_t last = lines.size();
  for (size_t p = 0; p < lines.size(); ++p) {
    if (lines[p].rule > r && is_matrix(lines[p].name, lines[p].shape)) last = p;
  }
  if (last == lines.size()) return std::nullopt;
  bool alone = true;
  for (size_t p = 0; p < lines.size(); ++p) {
    if (p == last) continue;
    if (counts(p) && takes(lines[p].name, lines[p].shape, lines[last].shape[0])) return std::nullopt;
    alone &= lines[p].shape.size() < 2;
  }
  if (alone) return std::nullopt;
  return last;
}

std::string shape_text(at::IntArrayRef shape) { return shape.empty() ? "scalar" : c10::Join(" × ", shape); }

}  // namespace

Rules default_rules(const Options& matrices, const Options& rest,
                    const std::optional<std::vector<std::string>>& heads) {
  const std::shared_ptr<const Options> first = matrices.copy();
  const std::shared_ptr<const Options> second = rest.copy();
  Rules rules;
  if (heads) {
    for (const auto& name : *heads)
      rules.push_back({.label = "head", .pattern = below(name), .required = name, .options = second});
  }
  rules.push_back({.label = "vector", .max_dimensions = 1, .options = second});
  rules.push_back({.label = "embedding", .pattern = kEmbeddings, .options = second});
  rules.push_back({.label = "recurrence", .pattern = kRecurrences, .options = second});
  rules.push_back({.label = "depthwise", .only = Only::Depthwise, .options = second});
  if (!heads) {
    rules.push_back({.label = "last layer", .only = Only::LastMatrix, .options = second});
    rules.push_back({.label = "head", .pattern = kHeads, .options = second});
  }
  rules.push_back({.label = kHiddenMatrix, .min_dimensions = 2, .options = first});
  return rules;
}

std::vector<std::string> plain_names(std::vector<std::string> names) {
  // Remove wrappers around the whole model first: a model with a submodule called `module` then has the same names
  // wrapped and plain.
  const auto shared = [&] {
    const std::string_view wrapper = names.empty() ? std::string_view() : wrapper_of(names.front());
    const bool all =
        std::all_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(wrapper); });
    return all ? wrapper.size() : 0;
  };
  for (size_t length = shared(); length > 0; length = shared()) {
    for (auto& name : names) name.erase(0, length);
  }
  std::map<std::string, int> uses;
  for (const auto& name : names) ++uses[without_wrappers(name)];
  for (auto& name : names) {
    if (auto plain = without_wrappers(name); uses[plain] == 1) name = std::move(plain);
  }
  return names;
}

Routing::Routing(Rules rules, const Parameters& parameters) : rules_(std::move(rules)) {
  TORCH_CHECK(parameters.names.size() == parameters.size(),
              "routing: parameters must have names; pass model->named_parameters()");
  const auto patterns = compiled(rules_);
  const auto plain = plain_names(parameters.names);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& name = parameters.names[p];
    TORCH_CHECK(!name.ends_with("_flat_param"), "routing: '", name,
                "' is a flat parameter of FullyShardedDataParallel, which hides the matrices in one vector; use "
                "DistributedDataParallel");
    const auto shape = parameters.tensors[p].sizes();
    lines_.push_back({name, shape.vec(), first_match(rules_, patterns, plain[p], shape)});
  }
  // A head that was recognized by name keeps that label.
  const auto goes_there = [&](const Line& line, size_t r) {
    return line.rule < rules_.size() && rules_[line.rule].options->name() == rules_[r].options->name();
  };
  for (size_t r = 0; r < rules_.size(); ++r) {
    const auto last =
        rules_[r].only == Only::LastMatrix ? output_layer(rules_, patterns, lines_, plain, r) : std::nullopt;
    if (last && std::regex_search(plain[*last], patterns[r]) && !goes_there(lines_[*last], r)) lines_[*last].rule = r;
    const bool used = std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) { return line.rule == r; });
    TORCH_CHECK_VALUE(used || rules_[r].required.empty(), "routing: the ", rules_[r].label, " '", rules_[r].required,
                      "' must be the name of a parameter or of a module with parameters, as the table gives them");
  }
  for (const auto& line : lines_) {
    TORCH_CHECK(line.rule < rules_.size(), "routing: no rule matches '", line.name, "' of shape ",
                at::IntArrayRef(line.shape), "; add a rule for it");
  }
}

std::ostream& operator<<(std::ostream& stream, const Routing& routing) {
  std::vector<std::vector<std::string>> rows = {{"parameter", "shape", "rule", "optimizer"}};
  std::map<std::string, std::pair<int64_t, int64_t>> totals;
  for (const auto& line : routing.lines_) {
    const Rule& rule = routing.rules_[line.rule];
    rows.push_back({line.name, shape_text(line.shape), rule.label, rule.options->name()});
    auto& [count, size] = totals[rule.options->name()];
    ++count;
    size += c10::multiply_integers(line.shape);
  }
  stream << io::aligned(rows);
  for (const auto& [optimizer, total] : totals) {
    stream << optimizer << ": " << io::grouped(total.second) << " elements in " << total.first
           << (total.first == 1 ? " parameter\n" : " parameters\n");
  }
  return stream;
}

}  // namespace prism
