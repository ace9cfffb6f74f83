#include <fcntl.h>
#include <unistd.h>

#include <csignal>
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

// A standard stream that is closed would be the number of the next file that is opened, and what is meant for the
// screen would be written into it.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDWR) != stream) std::_Exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  const std::string_view command = argc > 1 ? argv[1] : "";
  const bool trains = command == "train" || command == "compare" || command == "reproduce";
  // Training goes on without a screen. Elsewhere a reader that ends, such as `head`, ends the program too.
  if (trains) std::signal(SIGPIPE, SIG_IGN);
  if (trains || command == "bench") wait_without_spinning(argv);
  return prism::cli::run(argc, argv);
}
