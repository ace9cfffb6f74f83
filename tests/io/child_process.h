#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

// From here on no file of this process grows past `bytes`: writes fail as on a full disk, but with EFBIG.
inline void limit_file_size(size_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("cannot limit the file size");
}

}  // namespace prism::io
