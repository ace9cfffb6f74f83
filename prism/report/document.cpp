#include "prism/report/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prism/io/error.h"
#include "prism/io/json.h"

namespace prism::report {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& where, std::string_view expected, const json& found) {
  throw Error(fmt::format("report: {}: expected {}, got {}", where.empty() ? "document" : where, expected,
                          found.is_structured() ? found.type_name() : io::quote(found.dump())));
}

// A rule throws where a value breaks it; `where` is the path of the value, like runs[3].train.
using Rule = std::function<void(const json& value, const std::string& where)>;

struct Field {
  std::string name;  // with a trailing ? when it may be left out
  Rule rule;
};

Rule is(bool (*accepts)(const json&), std::string_view expected) {
  return [=](const json& value, const std::string& where) {
    if (!accepts(value)) refuse(where, expected, value);
  };
}

const Rule kText = is([](const json& v) { return v.is_string(); }, "text");
const Rule kBoolean = is([](const json& v) { return v.is_boolean(); }, "true or false");
const Rule kInteger = is([](const json& v) { return v.is_number_integer(); }, "an integer");
const Rule kNumber = is([](const json& v) { return v.is_number() || v.is_null(); }, "a number or null");
const Rule kRate = is([](const json& v) { return v.is_number() && v.get<double>() > 0; }, "a number above 0");
const Rule kNotNegative = is([](const json& v) { return v.is_number() && v.get<double>() >= 0; }, "a number from 0 on");
const Rule kFraction =
    is([](const json& v) { return v.is_number() && v.get<double>() > 0 && v.get<double>() < 1; }, "a number in (0, 1)");

Rule one_of(std::vector<json> words) {
  return [words = std::move(words)](const json& value, const std::string& where) {
    if (std::ranges::find(words, value) == words.end()) {
      std::vector<std::string> texts;
      for (const auto& word : words) texts.push_back(word.dump());
      refuse(where, fmt::format("one of {}", fmt::join(texts, ", ")), value);
    }
  };
}

Rule list(Rule element) {
  return [element = std::move(element)](const json& value, const std::string& where) {
    if (!value.is_array()) refuse(where, "a list", value);
    for (size_t i = 0; i < value.size(); ++i) element(value[i], fmt::format("{}[{}]", where, i));
  };
}

Rule or_null(Rule rule) {
  return [rule = std::move(rule)](const json& value, const std::string& where) {
    if (!value.is_null()) rule(value, where);
  };
}

Rule object(std::vector<Field> fields) {
  return [fields = std::move(fields)](const json& value, const std::string& where) {
    if (!value.is_object()) refuse(where, "an object", value);
    std::set<std::string> known;
    for (const auto& [name, rule] : fields) {
      const bool optional = name.ends_with('?');
      const auto key = name.substr(0, name.size() - (optional ? 1 : 0));
      const auto path = where.empty() ? key : fmt::format("{}.{}", where, key);
      known.insert(key);
      if (const auto found = value.find(key); found != value.end()) {
        rule(*found, path);
      } else if (!optional) {
        throw Error(fmt::format("report: {}: missing", path));
      }
    }
    for (const auto& [key, ignored] : value.items()) {
      if (!known.contains(key)) {
        throw Error(fmt::format("report: {}: unknown key {}", where.empty() ? "document" : where, io::quote(key)));
      }
    }
  };
}

// The lists of the object have one length.
Rule equal_lengths(Rule rule, std::vector<std::string> keys) {
  return [rule = std::move(rule), keys = std::move(keys)](const json& value, const std::string& where) {
    rule(value, where);
    const json* first = nullptr;
    for (const auto& key : keys) {
      if (!value.contains(key)) continue;
      if (first != nullptr && first->size() != value[key].size()) {
        throw Error(fmt::format("report: {}.{}: expected {} numbers like the lists beside it, got {}", where, key,
                                first->size(), value[key].size()));
      }
      first = &value[key];
    }
  };
}

void check_ascending_steps(const json& curve, const std::string& where) {
  const auto& steps = curve.at("step");
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] <= steps[i - 1]) {
      throw Error(fmt::format("report: {}.step[{}]: expected more than {}, got {}", where, i, steps[i - 1].dump(),
                              steps[i].dump()));
    }
  }
}

Rule curve(std::vector<Field> fields) {
  std::vector<std::string> keys;
  for (const auto& field : fields) keys.push_back(field.name.substr(0, field.name.find('?')));
  return
      [rule = equal_lengths(object(std::move(fields)), std::move(keys))](const json& value, const std::string& where) {
        rule(value, where);
        check_ascending_steps(value, where);
      };
}

const Rule kNumbers = list(kNumber);
const Rule kSteps = list(kInteger);
const Rule kStatus = one_of({"finished", "diverged", "interrupted", "running"});
const Rule kFact = [](const json& value, const std::string& where) {
  list(kText)(value, where);
  if (value.size() != 2) refuse(where, "a name and a value", value);
};

Rule optimizer_rule() {
  return object({
      {"id", kText},
      {"label", kText},
      {"detail?", kText},
      {"sweep?", list(object({{"lr", kRate}, {"loss", kNumber}, {"status", kStatus}}))},
      {"best_lr?", or_null(kRate)},
      {"edge?", one_of({"low", "high", nullptr})},
      {"tolerance?",
       or_null(object({{"low", kRate}, {"high", kRate}, {"low_open?", kBoolean}, {"high_open?", kBoolean}}))},
      {"final?", or_null(object({{"mean", kNumber},
                                 {"low?", kNumber},
                                 {"high?", kNumber},
                                 {"seeds", list(object({{"seed", kInteger}, {"loss", kNumber}}))}}))},
      {"difference?", or_null(object({{"mean", kNumber}, {"low?", kNumber}, {"high?", kNumber}}))},
      {"tokens_to_baseline?", kNumber},
      {"seconds_to_baseline?", kNumber},
      {"tokens_speedup?", kNumber},
      {"seconds_speedup?", kNumber},
      {"step_ms?", kNumber},
      {"optimizer_ms?", kNumber},
      {"memory?", object({{"weights?", kNumber},
                          {"gradients?", kNumber},
                          {"optimizer?", kNumber},
                          {"peak?", kNumber},
                          {"of?", kText}})},
  });
}

Rule spectrum_rule() {
  const auto rule = object({{"step", kInteger},
                            {"matrix", kText},
                            {"gamma?", kNumber},
                            {"snr?", kNumbers},
                            {"gain?", kNumbers},
                            {"theory?", kNumbers},
                            {"singular_values?", kNumbers},
                            {"weight_singular_values?", kNumbers},
                            {"weight_norm?", kNumber},
                            {"update_norm?", kNumber}});
  return equal_lengths(rule, {"snr", "gain", "theory"});
}

Rule run_rule() {
  const std::vector<Field> losses = {
      {"step", kSteps}, {"tokens?", kNumbers}, {"seconds?", kNumbers}, {"loss", kNumbers}};
  auto with_extremes = losses;
  with_extremes.insert(with_extremes.end(), {{"low?", kNumbers}, {"high?", kNumbers}});
  return object({{"optimizer", kText},
                 {"lr", kNotNegative},
                 {"seed", kInteger},
                 {"status", kStatus},
                 {"best?", kBoolean},
                 {"stopped_step?", kNumber},
                 {"loss?", kNumber},
                 {"val_loss?", kNumber},
                 {"seconds?", kNumber},
                 {"folder?", kText},
                 {"train?", curve(with_extremes)},
                 {"val?", curve(losses)},
                 {"norms?", curve({{"step", kSteps}, {"weight", kNumbers}})},
                 {"spectra?", list(spectrum_rule())}});
}

Rule document_rule() {
  const auto tone = one_of({"headline", "plain", "caution"});
  const auto row = object({{"parameter", kText}, {"shape?", list(kInteger)}, {"to", kText}, {"rule?", kText}});
  return object({
      {"kind", one_of({"compare", "train", "inspect"})},
      {"title", kText},
      {"program?", kText},
      {"created?", kText},
      {"summary", list(object({{"text", kText}, {"tone?", tone}}))},
      {"highlights?", list(object({{"value", kText}, {"label", kText}}))},
      {"baseline?", kText},
      {"tolerance?", kRate},
      {"confidence?", kFraction},
      {"optimizers", list(optimizer_rule())},
      {"runs", list(run_rule())},
      {"routing?", list(object({{"optimizer", kText}, {"rows", list(row)}}))},
      {"samples?", list(object({{"optimizer", kText}, {"prompt?", kText}, {"text", kText}}))},
      {"facts?", list(object({{"title", kText}, {"rows", list(kFact)}}))},
      {"config?", kText},
      {"command?", kText},
  });
}

// Every id that is spoken of belongs to one optimizer.
void check_ids(const json& document) {
  std::set<std::string> ids;
  for (const auto& optimizer : document.at("optimizers")) {
    const auto id = optimizer.at("id").get<std::string>();
    if (!ids.insert(id).second) throw Error(fmt::format("report: optimizers: two have the id {}", io::quote(id)));
  }
  const auto check = [&](const json& value, const std::string& where) {
    const auto id = value.get<std::string>();
    if (!ids.contains(id)) {
      throw Error(fmt::format("report: {}: no optimizer has the id {}; there are {}", where, io::quote(id),
                              ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, ", "))));
    }
  };
  if (document.contains("baseline")) check(document["baseline"], "baseline");
  for (const auto* key : {"runs", "routing", "samples"}) {
    if (!document.contains(key)) continue;
    for (size_t i = 0; i < document[key].size(); ++i) {
      check(document[key][i].at("optimizer"), fmt::format("{}[{}].optimizer", key, i));
    }
  }
}

}  // namespace

void check_document(const json& document) {
  static const Rule kDocument = document_rule();
  kDocument(document, "");
  check_ids(document);
}

}  // namespace prism::report
