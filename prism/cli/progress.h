#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace prism::cli {

// How far a long piece of work has come. On a terminal one line that is written over, within the terminal's width;
// elsewhere (a file, a pipe) a plain line after two seconds and then every ten, so that logs stay short. The line goes
// away when the object does, with an error message or not; what should stay is said with `note`. Work goes on
// when the stream is lost.
//
// While nothing is heard, a thread shows what is being done (`doing`) and for how long.
//
//   ProgressLine line;
//   line.doing("first step");
//   … if (line.due()) line.update(fmt::format("step {} …", step));
//   line.note("checkpoint saved");
class ProgressLine {
 public:
  struct Options {
    std::FILE* out = stderr;
    std::optional<bool> live = std::nullopt;  // as `out` is, unless given
    std::chrono::duration<double> live_interval{0.1};
    std::chrono::duration<double> plain_interval{10};
    std::chrono::duration<double> silence{2};  // the longest; half of it on a terminal
  };

  ProgressLine();
  explicit ProgressLine(Options options);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool due() const;                    // whether `update` would show anything now
  void update(std::string_view text);  // shown if due
  void doing(std::string_view what);   // shown when it takes long, until the next update
  void note(std::string_view text);    // a line that stays, above the one that moves
  void clear();                        // before something else writes to the terminal; ends `doing`

 private:
  using Clock = std::chrono::steady_clock;

  void show(std::string_view text);
  void erase();
  void watch();

  Options options_;
  bool live_;
  mutable std::mutex mutex_;  // guards what follows, and the stream
  bool shown_ = false;        // the moving line is on the screen
  Clock::time_point last_;    // something was shown
  std::string doing_;
  Clock::time_point began_;  // what is being done
  bool ended_ = false;
  std::condition_variable wake_;
  std::thread watcher_;  // runs `watch` from the first `doing` on
};

// Time since it was made, and what it says of work that is `done` of `total`.
class Pace {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double per_second(double done) const { return seconds() > 0 ? done / seconds() : 0; }
  double seconds_left(double done, double total) const {
    return done > 0 ? seconds() * std::max(total - done, 0.0) / done : std::numeric_limits<double>::infinity();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace prism::cli
