#pragma once

#include <string>
#include <vector>

#include "prism/compare/analysis.h"

namespace prism::compare {

using report::Sentence;

// Who won, by how much, how sure; then rates at the edge of their grid, diverged runs, tolerance.
std::vector<Sentence> sentences(const Plan& plan, const Comparison& comparison);

// The final table for the screen.
std::string screen_table(const Comparison& comparison, int64_t width = 80);

std::string plain_text(std::string text);          // without the marks of bold words
std::string rate_text(double lr);                  // "0.02"
std::string tolerance_text(const Result& result);  // "0.004 – 0.05, ×12", with < and > where the grid ends first

}  // namespace prism::compare
