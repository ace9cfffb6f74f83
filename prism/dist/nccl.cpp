#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "prism/dist/rendezvous.h"
#include "prism/dist/transports.h"
#include "prism/optim/c10d_exchange.h"

namespace prism::dist {
namespace {

// The store of the process that serves it. A base of Nccl, so that it lives longer than the group.
struct ServedStore {
  Store store;
};

// torch's process group: its watchdog ends this process when another one is gone or does not answer in time.
class Nccl : private ServedStore, public C10dExchange<c10d::ProcessGroupNCCL, Communicator> {
 public:
  Nccl(const Store& store, int64_t rank, int64_t size, at::Device device, Store served = {})
      : ServedStore{std::move(served)},
        C10dExchange(
            c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank), static_cast<int>(size))),
        device_(device) {}
  ~Nccl() override { finish(); }

  std::string transport() const override { return "NCCL"; }
  at::Device device() const override { return device_; }

  Pending begin_sum(const Tensor& values) override { return begin_reduction(values, c10d::ReduceOp::SUM); }

  Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& counts) override {
    std::vector<Pending> segments;
    int64_t begin = 0;
    for (int64_t r = 0; r < size(); ++r) {
      const int64_t count = counts[static_cast<size_t>(r)];
      segments.push_back(begin_broadcast(values.narrow(0, begin, count), r));
      begin += count;
    }
    return {[segments = std::move(segments), values] {
      for (const auto& segment : segments) segment.wait();
      return values;
    }};
  }

  void finish() override {
    if (std::exchange(is_finished_, true)) return;
    group().shutdown();
  }

  void abort(int status) override { std::_Exit(status); }  // the launcher ends the others

 private:
  at::Device device_;
  bool is_finished_ = false;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw Error(fmt::format("{}: expected it in the environment, as torchrun sets it", name));
  return value;
}

int64_t integer(const char* name, int64_t below) {
  const auto text = variable(name);
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0 || value >= below)
    throw Error(fmt::format("{}: expected an integer from 0 to {}, got '{}'", name, below - 1, text));
  return value;
}

}  // namespace

std::shared_ptr<Communicator> start_nccl(Communicator::Seconds timeout) {
  constexpr int64_t kMostRanks = 1 << 20, kMostPort = 1 << 16, kMostDevices = 128;
  const int64_t size = integer("WORLD_SIZE", kMostRanks), rank = integer("RANK", size);
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");  // torchrun keeps the store itself
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const Rendezvous place{.host = variable("MASTER_ADDR"),
                         .port = static_cast<uint16_t>(integer("MASTER_PORT", kMostPort)),
                         .rank = rank,
                         .size = size,
                         .is_server = rank == 0 && (agent == nullptr || std::string(agent) != "True"),
                         .round = restarts == nullptr ? "" : restarts};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(integer("LOCAL_RANK", kMostDevices)));
  return std::make_shared<Nccl>(meet(place, timeout), rank, size, device);
}

std::shared_ptr<Communicator> nccl_beside(const std::shared_ptr<Communicator>& all, at::Device device) {
  Store server;
  std::string address;
  if (all->rank() == 0) {
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, HOST_NAME_MAX);
    const auto store = c10::make_intrusive<c10d::TCPStore>(
        host, c10d::TCPStoreOptions{.port = 0, .isServer = true, .waitWorkers = false});
    address = fmt::format("{} {}", host, store->getPort());
    server = store;
  }
  address = all->gather(address).front();
  const auto space = address.find(' ');
  const Rendezvous place{.host = address.substr(0, space),
                         .port = static_cast<uint16_t>(std::stoi(address.substr(space + 1))),
                         .rank = all->rank(),
                         .size = all->size()};
  return std::make_shared<Nccl>(meet(place, all->timeout()), all->rank(), all->size(), device, server);
}

Transport nccl_transport() { return {"NCCL", true, fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)}; }

}  // namespace prism::dist
