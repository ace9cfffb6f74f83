#include "prism/reproduce/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "prism/io/error.h"
#include "prism/reproduce/report.h"

namespace prism::reproduce {
namespace {

std::string where(const std::string& claim) { return fmt::format("experiment.claims: \"{}\"", claim); }

double number(const std::string& word, const std::string& claim) {
  if (const auto value = as_number(word)) return *value;
  throw Error(fmt::format("{}: expected a number, got \"{}\"", where(claim), word));
}

// Parses "prism-2@0.02+0.05", "muon*2" or "0.02".
Operand parse_operand(std::string word, const compare::Plan& plan, const std::string& claim) {
  if (const auto value = as_number(word)) return {.contender = {}, .lr = {}, .factor = 0, .offset = *value};
  Operand operand;
  const auto take_after = [&](char mark) -> std::optional<double> {
    const auto at = word.rfind(mark);
    if (at == std::string::npos) return std::nullopt;
    const double value = number(word.substr(at + 1), claim);
    word.resize(at);
    return value;
  };
  operand.offset = take_after('+').value_or(0);
  operand.factor = take_after('*').value_or(1);
  operand.lr = take_after('@');
  std::vector<std::string> ids;
  for (size_t i = 0; i < plan.contenders().size(); ++i) {
    const auto& contender = plan.contenders()[i];
    ids.push_back(contender.id);
    if (contender.id == word) operand.contender = i;
  }
  if (!operand.contender)
    throw Error(fmt::format("{}: expected a name of compare.optimizers ({}), got \"{}\"", where(claim),
                            fmt::join(ids, ", "), word));
  const auto& rates = plan.contenders()[*operand.contender].rates;
  if (operand.lr && std::find(rates.begin(), rates.end(), *operand.lr) == rates.end())
    throw Error(
        fmt::format("{}: expected a rate of {} ({}), got {}", where(claim), word, fmt::join(rates, ", "), *operand.lr));
  return operand;
}

struct Value {
  std::string text;  // "Muon at 0.05 6.0169"
  double number = 0;
  bool plain = false;  // a number of the claim, not a measured value
};

const Row* row_of(const Operand& operand, const compare::Plan& plan, const std::vector<Row>& rows) {
  const bool only = plan.contenders()[*operand.contender].rates.size() == 1;
  for (const auto& row : rows) {
    if (row.contender == *operand.contender && (operand.lr ? row.lr == *operand.lr : only || row.best)) return &row;
  }
  return nullptr;
}

std::optional<Value> value_of(const Operand& operand, const Claim& claim, const compare::Plan& plan,
                              const std::vector<Row>& rows) {
  if (!operand.contender) return Value{claim.measure->text(operand.offset), operand.offset, true};
  const Row* row = row_of(operand, plan, rows);
  if (row == nullptr) return std::nullopt;
  // The loss is the table's mean over seeds; other measures are those of the first seed.
  const auto measured =
      claim.measure->name == "loss" ? std::optional(row->held_out.mean) : claim.measure->of(*row->run);
  if (!measured) return std::nullopt;
  auto label = row->label;
  if (plan.contenders()[row->contender].rates.size() > 1) label += fmt::format(" at {:g}", row->lr);
  label += " " + (std::isfinite(*measured) ? claim.measure->text(*measured) : "diverged");
  if (operand.factor != 1)
    label += fmt::format(", ×{:g} is {}", operand.factor, claim.measure->text(*measured * operand.factor));
  if (operand.offset != 0) label += fmt::format(" + {:g}", operand.offset);
  return Value{label, *measured * operand.factor + operand.offset};
}

std::string listed(const std::vector<Value>& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(value.text);
  return fmt::format("{}", fmt::join(texts, ", "));
}

Verdict judge_spread(const Claim& claim, const std::vector<std::vector<Value>>& groups) {
  const auto& group = groups.front();
  const auto [low, high] =
      std::minmax_element(group.begin(), group.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  const double spread = high->number - low->number;
  const double limit = groups.back().front().number;
  const bool holds = claim.relations.front() == '<' ? spread < limit : spread > limit;
  return {holds ? Judgment::Confirmed : Judgment::Refuted,
          fmt::format("{}: {} (from {} to {}: {})", holds ? "Confirmed" : "Refuted", claim.text, low->text, high->text,
                      std::isfinite(spread) ? claim.measure->text(spread) : "unbounded")};
}

}  // namespace

std::optional<double> as_number(const std::string& text) {
  try {
    size_t end = 0;
    const double value = std::stod(text, &end);
    return end == text.size() ? std::optional(value) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Claim parse_claim(const std::string& text, const compare::Plan& plan) {
  const auto bar = text.find(" | ");
  if (bar == std::string::npos)
    throw Error(fmt::format("{}: expected TEXT | MEASURE NAMES < NAMES, got no \" | \"", where(text)));
  Claim claim;
  claim.text = text.substr(0, bar);
  std::istringstream words(text.substr(bar + 3));
  std::string word;
  words >> word;
  if (word == "spread") {
    claim.spread = true;
    words >> word;
  }
  claim.measure = &measure(word, where(text));
  claim.groups.emplace_back();
  while (words >> word) {
    if (word == "<" || word == ">") {
      claim.relations.push_back(word.front());
      claim.groups.emplace_back();
    } else {
      claim.groups.back().push_back(parse_operand(word, plan, text));
    }
  }
  const bool whole =
      std::none_of(claim.groups.begin(), claim.groups.end(), [](const auto& group) { return group.empty(); });
  if (!whole || claim.groups.size() < 2 || (claim.spread && (claim.groups.size() != 2 || claim.groups[1].size() != 1)))
    throw Error(fmt::format("{}: expected names on both sides of < or >{}", where(text),
                            claim.spread ? ", and one number after a spread" : ""));
  return claim;
}

Verdict judge(const Claim& claim, const compare::Plan& plan, const std::vector<Row>& rows) {
  std::vector<std::vector<Value>> groups;
  for (const auto& group : claim.groups) {
    groups.emplace_back();
    for (const auto& operand : group) {
      auto value = value_of(operand, claim, plan, rows);
      if (!value) return {Judgment::Open, fmt::format("Not known yet: {}", claim.text)};
      groups.back().push_back(std::move(*value));
    }
  }
  if (claim.spread) return judge_spread(claim, groups);
  std::vector<std::string> failed;
  std::string all = listed(groups.front());
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    const char relation = claim.relations[i];
    if (!groups[i + 1].front().plain) all += fmt::format(" {} {}", relation, listed(groups[i + 1]));
    for (const auto& left : groups[i]) {
      for (const auto& right : groups[i + 1]) {
        const bool holds = relation == '<' ? left.number < right.number : left.number > right.number;
        if (!holds) failed.push_back(right.plain ? left.text : fmt::format("{}, but {}", left.text, right.text));
      }
    }
  }
  if (failed.empty()) return {Judgment::Confirmed, fmt::format("Confirmed: {} ({})", claim.text, all)};
  return {Judgment::Refuted, fmt::format("Refuted: {} ({})", claim.text, fmt::join(failed, "; "))};
}

}  // namespace prism::reproduce
