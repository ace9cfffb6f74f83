#include "prism/cli/progress.h"

#include <fmt/format.h>

#include "prism/cli/terminal.h"

namespace prism::cli {

ProgressLine::ProgressLine() : ProgressLine(Options{}) {}

ProgressLine::ProgressLine(Options options)
    : options_(options),
      live_(options.live.value_or(terminal_of(options.out).live)),
      last_(live_ ? Clock::time_point{} : Clock::now()) {}

ProgressLine::~ProgressLine() { clear(); }

bool ProgressLine::due() const {
  return Clock::now() - last_ >= (live_ ? options_.live_interval : options_.plain_interval);
}

void ProgressLine::update(std::string_view text) {
  if (!due()) return;
  last_ = Clock::now();
  if (live_) {
    // One column stays free: terminals wrap after the last.
    say(options_.out, fmt::format("\r{}\x1b[K", fitted(text, terminal_of(options_.out).width - 1)));
    shown_ = true;
  } else {
    say(options_.out, fmt::format("{}\n", text));
  }
}

void ProgressLine::note(std::string_view text) {
  clear();
  say(options_.out, fmt::format("{}\n", text));
}

void ProgressLine::clear() {
  if (!shown_) return;
  say(options_.out, "\r\x1b[K");
  shown_ = false;
}

}  // namespace prism::cli
