#include "prism/cli/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "prism/io/file.h"

namespace prism::cli {
namespace {

constexpr const char* kProgram = "/proc/self/exe";

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const Options& options) {
  std::vector<std::string> words{"prism"}, variables = options.environment;  // getenv finds the first of equal names
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  const auto argv = pointers(words), envp = pointers(variables);

  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) io::throw_system_error("make a pipe to", kProgram, errno);
  pid_ = ::fork();
  if (pid_ == 0) {    // between fork and exec, only async-signal-safe calls
    ::setpgid(0, 0);  // Ctrl-C reaches only the parent
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(options.errors >= 0 ? options.errors : ends[1], STDERR_FILENO);
    ::alarm(options.seconds);
    ::execve(kProgram, argv.data(), envp.data());
    ::_exit(127);
  }
  const int error = errno;
  ::close(ends[1]);
  if (pid_ < 0) {
    ::close(ends[0]);
    io::throw_system_error("start", kProgram, error);
  }
  output_ = ends[0];
}

ChildProcess::~ChildProcess() {
  ::close(output_);
  if (pid_ <= 0) return;
  stop();
  wait();
}

bool ChildProcess::read(std::string& text) const {
  std::array<char, 4096> buffer{};
  const auto got = ::read(output_, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

void ChildProcess::stop() const { ::kill(pid_, SIGTERM); }

ChildProcess::Ending ChildProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace prism::cli
