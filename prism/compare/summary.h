#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/compare/analysis.h"
#include "prism/report/page.h"

namespace prism::compare {

// summary.json of a comparison. What the clock and the memory measured is under "timing" and "memory" and in no other
// place.
nlohmann::json summary_json(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs);

// One line per run.
std::string runs_csv(const Plan& plan, const std::vector<RunOutcome>& runs);

report::PageDocument page_document(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs,
                                   const std::vector<report::Sample>& samples, const std::string& command);

}  // namespace prism::compare
