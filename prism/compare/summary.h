#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/compare/analysis.h"
#include "prism/report/page.h"

namespace prism::compare {

// Returns summary.json of a comparison. Only "timing" and "memory" hold measurements of time and memory.
nlohmann::json summary_json(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs);

// Returns runs.csv, one line per run.
std::string runs_csv(const Plan& plan, const std::vector<RunOutcome>& runs);

report::PageDocument page_document(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs,
                                   const std::vector<report::Sample>& samples, const std::string& command);

}  // namespace prism::compare
