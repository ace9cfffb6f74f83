#include "prism/optim/routing.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <map>
#include <numeric>
#include <ostream>
#include <regex>
#include <sstream>

#include "prism/io/numbers.h"

namespace prism {
namespace {

constexpr const char* kEmbeddings = R"((^|\.)(\w*embed\w*|\w*emb|wte|wpe|tok_\w+|pos_\w+|position\w*)(\.|$))";
constexpr const char* kHeads =
    R"((^|\.)(lm_head|\w*head|output|classifier|score|embed_out|unembed\w*)\.weight$|^fc\.weight$)";

constexpr std::array<std::string_view, 4> kWrappers = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module"};

// "module." and the like where a name begins with one, else nothing.
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

std::string shape_text(at::IntArrayRef shape) { return shape.empty() ? "scalar" : c10::Join(" × ", shape); }

int64_t elements(at::IntArrayRef shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Columns on the screen: UTF-8 continuation bytes take none.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

}  // namespace

Rules default_rules(const Options& matrices, const Options& rest) {
  const std::shared_ptr<const Options> first = matrices.copy();
  const std::shared_ptr<const Options> second = rest.copy();
  Rules rules;
  rules.push_back({.label = "embedding", .pattern = kEmbeddings, .options = second});
  rules.push_back({.label = "head", .pattern = kHeads, .options = second});
  rules.push_back({.label = "vector", .max_dimensions = 1, .options = second});
  rules.push_back({.label = "hidden matrix", .min_dimensions = 2, .options = first});
  return rules;
}

std::vector<std::string> plain_names(std::vector<std::string> names) {
  // Around the whole model first: then a model with a submodule called `module` has the same names wrapped and plain.
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
  std::vector<std::regex> patterns;
  for (const auto& rule : rules_) {
    TORCH_CHECK(rule.options != nullptr, "routing: rule '", rule.label, "' has no options");
    try {
      patterns.emplace_back(rule.pattern);
    } catch (const std::regex_error& error) {
      TORCH_CHECK_VALUE(false, "routing: the pattern of rule '", rule.label, "' is not a regular expression: '",
                        rule.pattern, "'");
    }
  }
  const auto plain = plain_names(parameters.names);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& name = parameters.names[p];
    TORCH_CHECK(!name.ends_with("_flat_param"), "routing: '", name,
                "' is a flat parameter of FullyShardedDataParallel: one vector in which no matrix can be seen; use "
                "DistributedDataParallel");
    const auto shape = parameters.tensors[p].sizes();
    const auto dimensions = std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; });
    size_t match = 0;
    while (match < rules_.size() &&
           !(std::regex_search(plain[p], patterns[match]) && dimensions >= rules_[match].min_dimensions &&
             dimensions <= rules_[match].max_dimensions)) {
      ++match;
    }
    TORCH_CHECK(match < rules_.size(), "routing: no rule matches '", name, "' of shape ", shape, "; add a rule for it");
    lines_.push_back({name, shape.vec(), match});
  }
}

std::ostream& operator<<(std::ostream& stream, const Routing& routing) {
  size_t name_width = 9;
  size_t shape_width = 5;
  size_t label_width = 4;
  std::map<std::string, std::pair<int64_t, int64_t>> totals;
  for (const auto& line : routing.lines_) {
    const Rule& rule = routing.rules_[line.rule];
    name_width = std::max(name_width, width(line.name));
    shape_width = std::max(shape_width, width(shape_text(line.shape)));
    label_width = std::max(label_width, width(rule.label));
    auto& [count, size] = totals[rule.options->name()];
    ++count;
    size += elements(line.shape);
  }
  const auto row = [&](const std::string& name, const std::string& shape, const std::string& label,
                       const std::string& optimizer) {
    stream << padded(name, name_width) << "  " << padded(shape, shape_width) << "  " << padded(label, label_width)
           << "  " << optimizer << '\n';
  };
  row("parameter", "shape", "rule", "optimizer");
  for (const auto& line : routing.lines_) {
    const Rule& rule = routing.rules_[line.rule];
    row(line.name, shape_text(line.shape), rule.label, rule.options->name());
  }
  for (const auto& [optimizer, total] : totals) {
    stream << optimizer << ": " << io::grouped(total.second) << " elements in " << total.first
           << (total.first == 1 ? " parameter\n" : " parameters\n");
  }
  return stream;
}

}  // namespace prism
