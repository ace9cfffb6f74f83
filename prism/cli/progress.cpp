#include "prism/cli/progress.h"

#include <fmt/format.h>

#include <cmath>

#include "prism/cli/numbers.h"
#include "prism/cli/terminal.h"

namespace prism::cli {

ProgressLine::ProgressLine() : ProgressLine(Options{}) {}

ProgressLine::ProgressLine(Options options)
    : options_(options), live_(options.live.value_or(terminal_of(options.out).live)) {
  // The first line may come at once on a terminal, elsewhere after the longest silence.
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
    // One column stays free: terminals wrap after the last.
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
    // The time comes first: the end of a long line is what a narrow terminal loses.
    show(fmt::format("{} … {}", in_time(std::floor(taken.count())), doing_));
  }
}

}  // namespace prism::cli
