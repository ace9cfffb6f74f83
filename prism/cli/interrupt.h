#pragma once

#include <atomic>
#include <string>

namespace prism::cli {

// Printed when a signal interrupts training; fits in 80 columns.
inline constexpr const char* kSavesRun = "stopping: saving after this step; press Ctrl-C again to quit without saving";

// While an object exists, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program, so that work can be
// saved or undone. A second SIGINT or SIGTERM ends the program; a second SIGHUP does not, because a closing terminal
// often sends two. SIGHUP stays ignored if it was (nohup). Only one object may exist at a time.
//
// `answer` is written to standard error as soon as a signal arrives.
class Interrupt {
 public:
  explicit Interrupt(const std::string& answer = "");
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void check() const;                      // throws std::runtime_error if a signal has arrived
  const std::atomic<int>& signal() const;  // the number of the signal that arrived, or 0
};

}  // namespace prism::cli
