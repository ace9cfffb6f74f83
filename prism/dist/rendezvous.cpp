#include "prism/dist/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace prism::dist {
namespace {

Store open(const Rendezvous& place, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.is_server;
  options.numWorkers = static_cast<size_t>(place.size);
  options.waitWorkers = false;  // `meet` says who is missing
  options.timeout = timeout;
  return c10::make_intrusive<c10d::PrefixStore>("prism" + place.round,
                                                c10::make_intrusive<c10d::TCPStore>(place.host, options));
}

}  // namespace

Store meet(const Rendezvous& place, Communicator::Seconds timeout) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  const auto end = Clock::now() + timeout;
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(1));
  };
  const auto where = fmt::format("{}:{} (MASTER_ADDR:MASTER_PORT)", place.host, place.port);
  const auto key = [](int64_t rank) { return fmt::format("size/{}", rank); };
  Store store;
  try {
    store = open(place, left());
    if (store->add(fmt::format("count/{}", place.rank), 1) > 1)
      throw Error(fmt::format("RANK: expected another number for each process, got {} twice", place.rank));
    store->set(key(place.rank), std::to_string(place.size));
  } catch (const c10::Error& error) {
    throw PeerError(fmt::format("cannot reach the other processes at {} within {:g} s: {}", where, timeout.count(),
                                error.what_without_backtrace()));
  }
  for (int64_t rank = 0; rank < place.size; ++rank) {
    std::string size;
    try {
      store->wait({key(rank)}, left());
      size = store->get_to_str(key(rank));
    } catch (const c10::Error&) {
      throw PeerError(
          fmt::format("process {} of {} did not come to {} within {:g} s", rank, place.size, where, timeout.count()));
    }
    if (size == std::to_string(place.size)) continue;
    throw Error(
        fmt::format("WORLD_SIZE: expected the same number in all processes, got {} in process {} and {} in "
                    "process {}",
                    place.size, place.rank, size, rank));
  }
  return store;
}

}  // namespace prism::dist
