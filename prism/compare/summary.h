#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/compare/analysis.h"

namespace prism::compare {

struct Sample {
  std::string optimizer, prompt, text;
};

nlohmann::json finite_or_null(double value);
nlohmann::json to_json(const Estimate& estimate);  // {mean, low?, high?}
nlohmann::json to_json(Edge edge);                 // "low", "high" or null

// summary.json of a comparison. What the clock and the memory measured is under "timing" and "memory" and in no other
// place.
nlohmann::json summary_json(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs);

// One line per run.
std::string runs_csv(const Plan& plan, const std::vector<RunOutcome>& runs);

// The document of the page (prism/report/page.h).
nlohmann::json page_document(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs,
                             const std::vector<Sample>& samples, const std::string& command);

}  // namespace prism::compare
