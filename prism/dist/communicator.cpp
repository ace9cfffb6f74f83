#include "prism/dist/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "prism/dist/transports.h"

namespace prism::dist {
namespace {

class OneProcess : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string transport() const override { return "one process"; }
  at::Device device() const override { return at::kCPU; }
  bool is_distributed() const override { return false; }
  void maximum(Tensor& /*values*/) override {}
  Pending begin_sum(const Tensor& values) override { return done(values); }
  void broadcast(Tensor& /*values*/, int64_t /*root*/) override {}
  Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& /*counts*/) override {
    return done(values);
  }
  void finish() override {}
  void abort(int status) override { std::_Exit(status); }

 protected:
  Pending start(Tensor input, std::vector<int64_t> /*sent*/, std::vector<int64_t> /*received*/) override {
    return done(input);
  }

 private:
  static Pending done(const Tensor& values) {
    return {[values] { return values; }};
  }
};

}  // namespace

std::vector<std::string> Communicator::gather(const std::string& text) {
  const auto ranks = static_cast<size_t>(size());
  Tensor lengths = at::zeros({size()}, at::kLong);
  lengths[rank()].fill_(static_cast<int64_t>(text.size()));
  lengths = lengths.to(device());
  sum(lengths);
  lengths = lengths.cpu();
  const std::vector<int64_t> counts(lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + size());
  int64_t total = 0, before = 0;
  for (int64_t r = 0; r < size(); ++r) {
    if (r < rank()) before += counts[r];
    total += counts[r];
  }
  Tensor bytes = at::empty({total}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>() + before, text.data(), text.size());
  bytes = bytes.to(device());
  all_gather(bytes, counts);
  bytes = bytes.cpu();
  std::vector<std::string> texts(ranks);
  const auto* next = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  for (size_t r = 0; r < ranks; ++r) {
    texts[r].assign(next, static_cast<size_t>(counts[r]));
    next += counts[r];
  }
  return texts;
}

std::shared_ptr<Communicator> one_process() {
  static const auto alone = std::make_shared<OneProcess>();
  return alone;
}

std::shared_ptr<Communicator> start(Communicator::Seconds timeout, const std::function<void(std::string)>& late) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return start_mpi(timeout, late);
  if (std::getenv("WORLD_SIZE") != nullptr && std::getenv("RANK") != nullptr) return start_nccl(timeout);
  return one_process();
}

std::shared_ptr<Communicator> for_device(const std::shared_ptr<Communicator>& all, at::Device device) {
  if (!all->is_distributed() || all->device().type() == device.type()) return all;
  return nccl_beside(all, device);
}

int64_t local_rank() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    if (const char* value = std::getenv(name)) return std::strtoll(value, nullptr, 10);
  }
  return -1;
}

std::vector<Transport> transports() { return {mpi_transport(), nccl_transport()}; }

Fault current_fault() {
  try {
    throw;
  } catch (const Error& error) {
    return {2, error.what()};
  } catch (const c10::ValueError& error) {
    return {2, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    return {1, error.what_without_backtrace()};
  } catch (const std::bad_alloc&) {
    return {1, "out of memory"};
  } catch (const std::exception& error) {
    return {1, error.what()};
  }
}

void throw_together(Communicator& all, const Fault& fault) {
  const auto faults = all.gather(fault.status == 0 ? "" : fmt::format("{}{}", fault.status, fault.text));
  const auto first = std::find_if(faults.begin(), faults.end(), [](const auto& text) { return !text.empty(); });
  if (first == faults.end()) return;
  const auto rank = first - faults.begin();
  std::string text;
  if (all.rank() == 0) text = (rank == 0 ? "" : fmt::format("process {}: ", rank)) + first->substr(1);
  if (first->front() == '2') throw AgreedError(text);
  throw AgreedFailure(text);
}

void expect_equal(Communicator& all, const std::string& what, const std::string& text) {
  const auto texts = all.gather(text);
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    throw AgreedError(all.rank() != 0 ? ""
                                      : fmt::format("the processes must have the same {}: it is {} on process 0 and {} "
                                                    "on process {}",
                                                    what, texts[0], texts[r], r));
  }
}

}  // namespace prism::dist
