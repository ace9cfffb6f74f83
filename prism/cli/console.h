#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "prism/io/atomic_file.h"
#include "prism/io/spelling.h"

namespace prism::cli {

// What the reader of a stream can show.
struct Terminal {
  bool live = false;   // lines can be written over: a terminal that is not "dumb"
  bool color = false;  // a live terminal, and NO_COLOR is unset or empty
  int64_t width = 80;  // columns, as they are now
};
Terminal terminal_of(std::FILE* stream);

// Writes the text and flushes it. A stream that cannot be written to (closed, full, a pipe that ended) is passed over:
// what is said is worth less than the work it is about.
void say(std::FILE* stream, std::string_view text);

// Prints a line of a command's report: the name in a column of its own, then the value.
void print_row(std::string_view name, std::string_view value);

enum class Color { Red, Green, Yellow, Bold, Faint };
std::string colored(std::string_view text, Color color, const Terminal& terminal);

// The first `columns` characters of UTF-8 text, the last an ellipsis where something is left out.
std::string fitted(std::string_view text, int64_t columns);

// Where a command writes its result: standard output, or a file that appears whole or not at all.
class Output {
 public:
  explicit Output(const std::string& path);  // empty or "-": standard output

  void write(std::string_view bytes);
  void finish();  // everything is where it should be, or an exception says what is wrong

 private:
  std::optional<io::AtomicFile> file_;
};

// Throws now what writing this file would throw after the work is done: no such folder, no permission, a folder there.
void check_writable(const std::filesystem::path& file);

// Numbers as people read them.
using io::grouped;                                  // 1,234,567
std::string in_bytes(double bytes);                 // 512 B, 1.5 kB, 23.4 MB: powers of 1000
std::string in_time(double seconds);                // 0.4 s, 12 s, 3 min 05 s, 2 h 07 min, 3 d 4 h
std::string in_percent(double part, double whole);  // " 42 %"; three places wide, at most 100

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
