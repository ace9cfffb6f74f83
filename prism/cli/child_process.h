#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace prism::cli {

// This program, running again in a process of its own. Its standard output is read through a pipe. Ctrl-C does not reach
// it; it gets SIGTERM when this process or the object ends.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> environment = {};  // "NAME=value", added to this process's own
    int errors = -1;                            // file descriptor for its standard error; -1: into its output
    unsigned seconds = 0;                       // ends it with SIGALRM after this time; 0: never
  };
  struct Ending {
    int status = 0;  // exit status, when no signal ended it
    int signal = 0;  // that ended it
  };

  ChildProcess(const std::vector<std::string>& arguments, const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int output() const { return output_; }  // file descriptor to poll
  // Appends up to 4 KiB of output to `text`, waiting until there is some; returns false at the end.
  bool read(std::string& text) const;
  void stop() const;  // sends SIGTERM
  Ending wait();

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

}  // namespace prism::cli
