#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "prism/dist/communicator.h"

namespace prism::dist {

// The address at which the processes of `torchrun` find each other, and their number.
struct Rendezvous {
  std::string host = {};
  uint16_t port = 0;
  int64_t rank = 0, size = 1;
  bool is_server = false;  // keep the store in this process
  std::string round = {};  // differs each time that the launcher starts all processes again with the same store
};

using Store = c10::intrusive_ptr<c10d::Store>;

// Opens the store at host:port and returns it when all ranks have come. Throws PeerError if the store or a rank cannot be
// reached within the time-out, and prism::Error if the processes do not agree on their number or two have the same rank.
Store meet(const Rendezvous& place, Communicator::Seconds timeout);

}  // namespace prism::dist
