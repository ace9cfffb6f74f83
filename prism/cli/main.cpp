#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "prism/cli/command.h"

namespace {

// Makes OpenMP threads sleep while they wait for each other. By default they spin; on a busy machine the thread they
// wait for is often not running, and training drops to a fifth of its speed, `eval` to a tenth. OpenMP reads the policy
// when it is loaded, so the program sets it and executes itself again, once.
void wait_without_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "PASSIVE", 0) == 0)
    execv("/proc/self/exe", argv);  // if this fails, the threads keep spinning
}

// Opens /dev/null in place of each closed standard stream. Otherwise the next file opened would get the stream's
// number, and text for the screen would be written into that file.
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
  const bool computes =
      trains || command == "eval" || command == "generate" || command == "inspect" || command == "bench";
  // Training survives the loss of its reader. The other commands end with it, as in `prism … | head`.
  if (trains) std::signal(SIGPIPE, SIG_IGN);
  if (computes) wait_without_spinning(argv);
  return prism::cli::run(argc, argv);
}
