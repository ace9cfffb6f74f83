#pragma once

#include <atomic>
#include <string>

namespace prism::cli {

// While it lives, SIGINT, SIGTERM and SIGHUP no longer end the program at once but are seen by `check`, so that what
// was begun can be saved or taken away again. A second SIGINT or SIGTERM ends the program; a second SIGHUP does not,
// for a terminal that closes often sends two. A SIGHUP that is ignored (nohup) stays ignored. One object at a time.
//
// `answer` is written to standard error the moment a signal comes, whatever the program is doing.
class Interrupt {
 public:
  explicit Interrupt(const std::string& answer = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void check() const;                      // throws std::runtime_error once a signal came
  const std::atomic<int>& signal() const;  // its number, or 0
};

}  // namespace prism::cli
