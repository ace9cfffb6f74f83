#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace prism::cli {

// How far a long piece of work has come. On a terminal one line that is written over, within the terminal's width;
// elsewhere (a file, a pipe) a plain line every ten seconds, so that logs stay short. The line goes away when the
// object does, with an error message or not; what should stay is said with `note`.
//
//   ProgressLine line;
//   … if (line.due()) line.update(fmt::format("step {} …", step));
//   line.note("checkpoint saved");
class ProgressLine {
 public:
  struct Options {
    std::FILE* out = stderr;
    std::optional<bool> live;  // as `out` is, unless given
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
  void show(std::string_view text);    // shown in any case: the last state of a stage, say
  void note(std::string_view text);    // a line that stays, above the one that moves
  void clear();                        // before something else writes to the terminal

 private:
  using Clock = std::chrono::steady_clock;

  Options options_;
  bool live_;
  bool shown_ = false;  // the moving line is on the screen
  std::optional<Clock::time_point> last_;
};

}  // namespace prism::cli
