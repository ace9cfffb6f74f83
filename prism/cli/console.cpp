#include "prism/cli/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "prism/io/file.h"

namespace prism::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Returns true if a file is a pipe or socket whose other end has been closed.
bool reader_is_gone(int fd) {
  pollfd file{fd, POLLOUT, 0};
  return poll(&file, 1, /*ms=*/0) == 1 && (file.revents & (POLLERR | POLLHUP)) != 0;
}

constexpr const char* kStandardOutput = "standard output";

std::atomic<int> received = 0;
std::string answer_text;  // set while no handler is installed

// Calls only async-signal-safe functions.
void receive(int signal) {
  const int error = errno;
  if (received.exchange(signal) == 0 && !answer_text.empty() &&
      write(STDERR_FILENO, answer_text.data(), answer_text.size()) < 0) {
    // Standard error is closed; there is nobody to tell.
  }
  errno = error;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  action.sa_flags |= SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Terminal terminal_of(std::FILE* stream) {
  Terminal terminal;
  const int fd = fileno(stream);
  terminal.live = isatty(fd) == 1 && variable("TERM") != "dumb";
  terminal.color = terminal.live && variable("NO_COLOR").empty();
  if (winsize size{}; ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  return terminal;
}

void say(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
  std::clearerr(stream);
}

void finish_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int error = errno == 0 ? EIO : errno;  // 0: an earlier write failed, and its reason is gone
  if (!reader_is_gone(STDOUT_FILENO)) io::throw_system_error("write", kStandardOutput, error);
}

void print_row(std::string_view name, std::string_view value) { fmt::print("{:<12} {}\n", name, value); }

std::string colored(std::string_view text, Color color, const Terminal& terminal) {
  if (!terminal.color) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", static_cast<int>(color), text);
}

std::string fitted(std::string_view text, int64_t columns) {
  const auto characters = std::ranges::count_if(text, begins_character);
  if (characters <= columns) return std::string(text);
  int64_t left = std::max<int64_t>(columns - 1, 0);
  size_t end = 0;
  while (end < text.size() && (left > 0 || !begins_character(text[end]))) {
    if (begins_character(text[end])) --left;
    ++end;
  }
  return std::string(text.substr(0, end)) + (columns > 0 ? "…" : "");
}

Output::Output(const std::string& path) {
  if (!path.empty() && path != "-") file_.emplace(path);
}

void Output::write(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
  } else if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) {
    io::throw_system_error("write", kStandardOutput, errno);
  }
}

void Output::finish() {
  if (file_) {
    file_->commit();
  } else {
    finish_output();
  }
}

void check_writable(const std::filesystem::path& file) { const io::AtomicFile probe(file); }

std::string in_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 999.95 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string in_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "unknown";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(std::round(seconds), 1e15));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string in_percent(double part, double whole) {
  const double percent = whole > 0 ? 100 * part / whole : 100;
  return fmt::format("{:3.0f} %", std::clamp(std::floor(percent), 0.0, 100.0));
}

ProgressLine::ProgressLine() : ProgressLine(Options{}) {}

ProgressLine::ProgressLine(Options options)
    : options_(options), live_(options.live.value_or(terminal_of(options.out).live)) {
  // The first update may be shown at once on a terminal, elsewhere after `silence`.
  const auto passed = live_ ? options.live_interval : options.plain_interval - options.silence;
  last_ = Clock::now() - std::max(std::chrono::duration_cast<Clock::duration>(passed), Clock::duration::zero());
}

ProgressLine::~ProgressLine() {
  clear();
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

bool ProgressLine::due() const {
  const std::scoped_lock lock(mutex_);
  return Clock::now() - last_ >= (live_ ? options_.live_interval : options_.plain_interval);
}

void ProgressLine::update(std::string_view text) {
  if (!due()) return;
  const std::scoped_lock lock(mutex_);
  show(text);
  doing_ = live_ ? text : "";
  began_ = last_;
}

void ProgressLine::doing(std::string_view what) {
  const std::scoped_lock lock(mutex_);
  doing_ = what;
  began_ = Clock::now();
  if (!watcher_.joinable()) watcher_ = std::thread([this] { watch(); });
}

void ProgressLine::note(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  erase();
  say(options_.out, fmt::format("{}\n", text));
}

void ProgressLine::clear() {
  const std::scoped_lock lock(mutex_);
  erase();
  doing_.clear();
}

void ProgressLine::show(std::string_view text) {
  last_ = Clock::now();
  if (live_) {
    // Leave one column free: terminals wrap after the last.
    say(options_.out, fmt::format("\r{}\x1b[K", fitted(text, terminal_of(options_.out).width - 1)));
    shown_ = true;
  } else {
    say(options_.out, fmt::format("{}\n", text));
  }
}

void ProgressLine::erase() {
  if (!shown_) return;
  say(options_.out, "\r\x1b[K");
  shown_ = false;
}

void ProgressLine::watch() {
  std::unique_lock lock(mutex_);
  const auto patience = options_.silence / (live_ ? 2 : 1);
  while (!ended_) {
    wake_.wait_for(lock, patience / 4);
    const auto now = Clock::now();
    const std::chrono::duration<double> taken = now - began_;
    if (ended_ || doing_.empty() || taken < patience || now - last_ < (live_ ? patience : options_.plain_interval))
      continue;
    // The time comes first, because a narrow terminal cuts the end of the line.
    show(fmt::format("{} … {}", in_time(std::floor(taken.count())), doing_));
  }
}

Interrupt::Interrupt(const std::string& answer) {
  received = 0;
  if (!answer.empty()) answer_text = fmt::format("{}{}\n", terminal_of(stderr).live ? "\r\x1b[K" : "", answer);
  handle(receive);
}

Interrupt::~Interrupt() {
  handle(SIG_DFL);
  answer_text.clear();
}

void Interrupt::check() const {
  if (received != 0) throw std::runtime_error("interrupted; nothing was written");
}

const std::atomic<int>& Interrupt::signal() const { return received; }

}  // namespace prism::cli
