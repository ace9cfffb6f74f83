#include "prism/cli/interrupt.h"

#include <csignal>
#include <stdexcept>

namespace prism::cli {

namespace {

std::atomic<int> received = 0;

void receive(int signal) { received = signal; }

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

Interrupt::Interrupt() {
  received = 0;
  handle(receive);
}

Interrupt::~Interrupt() { handle(SIG_DFL); }

void Interrupt::check() const {
  if (received != 0) throw std::runtime_error("interrupted; nothing was written");
}

const std::atomic<int>& Interrupt::signal() const { return received; }

}  // namespace prism::cli
