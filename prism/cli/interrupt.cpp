#include "prism/cli/interrupt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>

#include "prism/cli/console.h"

namespace prism::cli {

namespace {

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
