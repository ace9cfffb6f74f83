#pragma once

#include <atomic>
#include <string>

namespace prism::cli {

// The answer of commands that train: it fits a terminal of 80 columns.
inline constexpr const char* kSavesRun =
    "stopping: the run is saved after this step; Ctrl-C again ends at once, unsaved";

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
