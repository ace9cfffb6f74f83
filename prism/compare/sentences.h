#pragma once

#include <string>
#include <vector>

#include "prism/compare/analysis.h"

namespace prism::compare {

using report::Sentence;

// Returns the winner and its margin, the confidence, the tolerance, and warnings: best rates at the edge of their grid,
// diverged runs.
std::vector<Sentence> sentences(const Plan& plan, const Comparison& comparison);

// Returns the results as a table for the terminal.
std::string screen_table(const Comparison& comparison, int64_t width = 80);

std::string plain_text(std::string text);                                // without the ** of bold words
std::string estimate_text(const Estimate& estimate, bool sign = false);  // "3.6929 ± 0.0041", or "diverged"
std::string rate_text(double lr);                                        // "0.02"
std::string tolerance_text(const Result& result);  // "0.004 – 0.05, ×12"; ≤ and ≥ mark ends of the grid

}  // namespace prism::compare
