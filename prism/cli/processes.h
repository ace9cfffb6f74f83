#pragma once

#include <functional>
#include <memory>
#include <string>

#include "prism/dist/communicator.h"

namespace prism::cli {

// Connects the processes that a launcher started, if any, and runs the action. Returns the exit status. Where several
// processes run, it reports exceptions: one that all of them throw (dist::Agreed) is printed once, and they end together;
// any other ends all processes at once. `timeout` is the longest wait for another process.
int on_all_processes(const std::string& who, dist::Communicator::Seconds timeout,
                     const std::function<int(const std::shared_ptr<dist::Communicator>&)>& action);

}  // namespace prism::cli
