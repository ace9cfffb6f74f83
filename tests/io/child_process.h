#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace prism::io {

// Runs the action in a forked child whose exit status is returned: 0 done, 1 an exception, 128 + n killed by signal n.
template <typename Action>
int in_child(Action&& action) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 1;
    try {
      action();
      status = 0;
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

constexpr int kNoTracing = 1000;

// The same, but the child is killed after n system calls, if it makes more.
template <typename Action>
int in_child_killed_after(int64_t n, Action&& action) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    action();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) return kNoTracing;
  for (int64_t i = 0; i < 2 * n && WIFSTOPPED(status); ++i) {  // stops at the entry and at the return of each
    if (::ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) != 0) return kNoTracing;
    ::waitpid(pid, &status, 0);
  }
  if (WIFSTOPPED(status)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// From here on no file of this process grows past `bytes`: writes fail as on a full disk, but with EFBIG.
inline void limit_file_size(size_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("cannot limit the file size");
}

}  // namespace prism::io
