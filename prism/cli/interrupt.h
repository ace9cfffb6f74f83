#pragma once

#include <atomic>

namespace prism::cli {

// While it lives, SIGINT and SIGTERM no longer end the program at once but are seen by `check`, so that what was begun
// can be taken away again. A second signal ends the program. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void check() const;                      // throws std::runtime_error once a signal came
  const std::atomic<int>& signal() const;  // its number, or 0
};

}  // namespace prism::cli
