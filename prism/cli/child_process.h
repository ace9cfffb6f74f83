#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace prism::cli {

// A second process of this program. Its standard output is read through a pipe. Ctrl-C does not reach it; it gets
// SIGTERM when this process or the object ends.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> environment = {};  // "NAME=value", added to this process's variables
    int errors = -1;                            // file descriptor for its standard error; -1: its output
    unsigned seconds = 0;                       // SIGALRM ends it after this time; 0: never
  };
  struct Ending {
    int status = 0;  // exit status; 0 if a signal ended it
    int signal = 0;  // the signal that ended it, or 0
  };

  ChildProcess(const std::vector<std::string>& arguments, const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int output() const { return output_; }  // file descriptor to poll
  // Waits for output and appends up to 4 KiB of it to `text`. Returns false at the end.
  bool read(std::string& text) const;
  void stop() const;  // sends SIGTERM
  Ending wait();

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

}  // namespace prism::cli
