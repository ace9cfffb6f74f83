#pragma once

#include <algorithm>
#include <atomic>
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

// The capabilities of the terminal behind a stream.
struct Terminal {
  bool live = false;   // lines can be rewritten: a terminal that is not "dumb"
  bool color = false;  // a live terminal, and NO_COLOR is unset or empty
  int64_t width = 80;  // columns at this moment
};
Terminal terminal_of(std::FILE* stream);

// Writes and flushes the text. Ignores a stream that cannot be written to (closed, full, a pipe without a reader):
// losing a message must not stop the work.
void say(std::FILE* stream, std::string_view text);

// Flushes standard output. Throws if something printed there could not be written (a full disk), except into a pipe
// whose reader has gone, as in `prism … | head`: that reader has what it wanted. Runs after every command.
void finish_output();

// Prints one line of a report: the name in a column of its own, then the value.
void print_row(std::string_view name, std::string_view value);

enum class Color { Bold = 1, Faint = 2, Red = 31, Green = 32, Yellow = 33 };  // codes of the escape sequences
std::string colored(std::string_view text, Color color, const Terminal& terminal);

// Returns UTF-8 text cut to `columns` characters, the last of which is an ellipsis if something was cut.
std::string fitted(std::string_view text, int64_t columns);

// The destination of a command's result: standard output, or a file that appears complete or not at all.
class Output {
 public:
  explicit Output(const std::string& path);  // empty or "-": standard output

  void write(std::string_view bytes);
  void finish();  // flushes or commits; throws if anything could not be written

 private:
  std::optional<io::AtomicFile> file_;
};

// Throws now what writing this file would throw later: no such folder, no permission, a folder of that name.
void check_writable(const std::filesystem::path& file);

// Numbers formatted for people.
using io::grouped;                                  // 1,234,567
std::string in_bytes(double bytes);                 // 512 B, 1.5 kB, 23.4 MB: powers of 1000
std::string in_time(double seconds);                // 0.4 s, 12 s, 3 min 05 s, 2 h 07 min, 3 d 4 h
std::string in_percent(double part, double whole);  // " 42 %": padded to three digits, at most 100

// Shows the progress of long work. On a terminal it rewrites one line, cut to the terminal's width. Elsewhere (a file,
// a pipe) it prints a plain line after two seconds and then every ten, which keeps logs short. The destructor erases
// the line; `note` prints lines that stay. A lost stream does not stop the work.
//
// If no update comes for a while, a thread shows the current activity (`doing`) and the time it has taken so far.
//
//   ProgressLine line;
//   line.doing("first step");
//   … if (line.due()) line.update(fmt::format("step {} …", step));
//   line.note("checkpoint saved");
class ProgressLine {
 public:
  struct Options {
    std::FILE* out = stderr;
    std::optional<bool> live = std::nullopt;  // if not given: whether `out` is a live terminal
    std::chrono::duration<double> live_interval{0.1};
    std::chrono::duration<double> plain_interval{10};
    std::chrono::duration<double> silence{2};  // show `doing` after this long; on a terminal after half of it
  };

  ProgressLine();
  explicit ProgressLine(Options options);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool due() const;                    // true if `update` would show something now
  void update(std::string_view text);  // shows the text if due
  void doing(std::string_view what);   // names the current activity, shown if it takes long
  void note(std::string_view text);    // prints a line that stays, above the progress line
  void clear();                        // erases the line before other output; ends `doing`

 private:
  using Clock = std::chrono::steady_clock;

  void show(std::string_view text);
  void erase();
  void watch();

  Options options_;
  bool live_;
  mutable std::mutex mutex_;  // guards the members below and the stream
  bool shown_ = false;        // the progress line is on the screen
  Clock::time_point last_;    // when something was last shown
  std::string doing_;
  Clock::time_point began_;  // when `doing_` began
  bool ended_ = false;
  std::condition_variable wake_;
  std::thread watcher_;  // runs `watch`, started by the first `doing`
};

// The time since construction, and the speed and time left of work that is `done` of `total`.
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
