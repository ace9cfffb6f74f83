#pragma once

#include <functional>
#include <string>

namespace prism::cli {

// Runs an action and reports the exception that it ends with, after the name `who`; one without text is not reported.
// Returns the exit status.
int perform(const std::function<int()>& action, const std::string& who);

}  // namespace prism::cli
