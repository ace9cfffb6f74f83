#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace prism::io {

// Forks a child that runs the action and exits with 0, or with 1 for an exception.
template <typename Action>
pid_t start_child(Action&& action) {
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("cannot fork");  // must never reach kill: -1 means every process
  if (pid > 0) return pid;
  int status = 1;
  try {
    action();
    status = 0;
  } catch (...) {
  }
  ::_exit(status);
}

inline int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Runs the action in a child and returns its exit status, or 128 + n if signal n killed it.
template <typename Action>
int in_child(Action&& action) {
  int status = 0;
  ::waitpid(start_child(action), &status, 0);
  return exit_status(status);
}

constexpr int kNoTracing = 99;
constexpr int kKilled = 128 + SIGKILL;

// The same, but kills the child after n system calls.
template <typename Action>
int in_child_killed_after(int64_t n, Action&& action) {
  const pid_t pid = start_child([&] {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNoTracing);
    ::raise(SIGSTOP);
    action();
  });
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFSTOPPED(status)) return exit_status(status);
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int64_t signal = 0;                                              // a signal of the child itself, to pass on
  for (int64_t stops = 0; stops < 2 * n && WIFSTOPPED(status);) {  // at the entry and at the return of each call
    if (::ptrace(PTRACE_SYSCALL, pid, nullptr, signal) != 0) break;
    ::waitpid(pid, &status, 0);
    const bool at_call = WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = WIFSTOPPED(status) && !at_call ? WSTOPSIG(status) : 0;
    stops += at_call;
  }
  if (WIFSTOPPED(status)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  return exit_status(status);
}

// Lets no file of this process grow past `bytes` from here on: writes fail as on a full disk, but with EFBIG.
inline void limit_file_size(size_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("cannot limit the file size");
}

}  // namespace prism::io
