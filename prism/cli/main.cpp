#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "prism/cli/command.h"

namespace {

// OpenMP's threads spin while they wait for each other. Where something else runs on the machine, the one that is
// waited for is often not running, and training then has a fifth of its speed. The library reads how to wait when it is
// loaded, so the program starts itself again, once.
void wait_without_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "PASSIVE", 0) == 0)
    execv("/proc/self/exe", argv);  // where this fails, things go on as they are
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "train" || command == "compare" || command == "bench") wait_without_spinning(argv);
  return prism::cli::run(argc, argv);
}
