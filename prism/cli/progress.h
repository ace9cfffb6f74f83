#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace prism::cli {

// How far a long piece of work has come. On a terminal one line that is written over, within the terminal's width;
// elsewhere (a file, a pipe) a plain line every ten seconds, so that logs stay short. The line goes away when the
// object does, with an error message or not; what should stay is said with `note`. Work goes on
// when the stream is lost.
//
//   ProgressLine line;
//   … if (line.due()) line.update(fmt::format("step {} …", step));
//   line.note("checkpoint saved");
class ProgressLine {
 public:
  struct Options {
    std::FILE* out = stderr;
    std::optional<bool> live = std::nullopt;  // as `out` is, unless given
    std::chrono::duration<double> live_interval{0.1};
    std::chrono::duration<double> plain_interval{10};
  };

  ProgressLine();
  explicit ProgressLine(Options options);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool due() const;                    // whether `update` would show anything now
  void update(std::string_view text);  // shown if due
  void note(std::string_view text);    // a line that stays, above the one that moves
  void clear();                        // before something else writes to the terminal

 private:
  using Clock = std::chrono::steady_clock;

  Options options_;
  bool live_;
  bool shown_ = false;  // the moving line is on the screen
  Clock::time_point last_;
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
