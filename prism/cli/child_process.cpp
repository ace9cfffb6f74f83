#include "prism/cli/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "prism/io/file.h"

namespace prism::cli {

namespace {

constexpr const char* kProgram = "/proc/self/exe";
constexpr unsigned kSecondsAllowed = 60;
constexpr size_t kMostOutput = size_t{64} << 10;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_all(int fd) {
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = ::read(fd, buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0 && output.size() < kMostOutput) output.append(buffer.data(), static_cast<size_t>(got));
  }
  return output;
}

}  // namespace

ChildResult run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::vector<std::string> words{"prism"}, variables;
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  variables.insert(variables.begin(), environment.begin(), environment.end());  // of equal names the first counts
  const auto argv = pointers(words), envp = pointers(variables);

  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) io::throw_system_error("make a pipe to", kProgram, errno);
  const pid_t child = ::fork();
  if (child == 0) {  // between fork and exec, only calls that are safe in a copy of one thread
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::alarm(kSecondsAllowed);
    ::execve(kProgram, argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (child < 0) io::throw_system_error("start", kProgram, errno);
  ChildResult result;
  result.output = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace prism::cli
