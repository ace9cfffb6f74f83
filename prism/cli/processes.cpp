#include "prism/cli/processes.h"

#include <fmt/format.h>

#include <cstdlib>

#include "prism/cli/console.h"
#include "prism/cli/perform.h"

namespace prism::cli {

int on_all_processes(const std::string& who, dist::Communicator::Seconds timeout,
                     const std::function<int(const std::shared_ptr<dist::Communicator>&)>& action) {
  const auto processes = dist::start(timeout, [&](const std::string& text) {
    say(stderr, fmt::format("{}: {}\n", who, text));
    std::_Exit(1);
  });
  if (!processes->is_distributed()) return action(processes);
  bool agreed = true;
  const auto guarded = [&] {
    try {
      return action(processes);
    } catch (const dist::Agreed&) {
      throw;
    } catch (...) {
      agreed = false;
      const auto fault = dist::current_fault();
      const auto text = fmt::format("process {}: {}", processes->rank(), fault.text);
      if (fault.status == 2) throw Error(text);
      throw std::runtime_error(text);
    }
  };
  const int status = perform(guarded, who);
  if (!agreed) processes->abort(status);
  processes->finish();
  return status;
}

}  // namespace prism::cli
