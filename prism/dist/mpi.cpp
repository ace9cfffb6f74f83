#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "prism/dist/transports.h"

namespace prism::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Elements of one message of an all-reduction: MPI counts with int.
constexpr int64_t kMostElements = int64_t{1} << 28;

MPI_Datatype type_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    case at::kInt:
      return MPI_INT32_T;
    case at::kByte:
      return MPI_UINT8_T;
    default:
      TORCH_CHECK(false, "MPI: expected float, double, long, int or byte, got ", tensor.scalar_type());
  }
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw PeerError(fmt::format("MPI: {} failed: {}", what, std::string_view(text, static_cast<size_t>(length))));
}

std::vector<int> as_counts(const std::vector<int64_t>& counts) {
  std::vector<int> list;
  for (const int64_t count : counts) {
    TORCH_CHECK(count <= INT_MAX, "MPI: expected messages of at most ", INT_MAX, " elements, got ", count);
    list.push_back(static_cast<int>(count));
  }
  return list;
}

std::vector<int> offsets_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets;
  int64_t next = 0;
  for (const int64_t count : counts) {
    offsets.push_back(next);
    next += count;
  }
  return as_counts(offsets);
}

// Calls `late` on another thread if this object still lives after the time-out.
class Watch {
 public:
  Watch(Communicator::Seconds timeout, const std::function<void(std::string)>& late) {
    if (!late) return;
    thread_ = std::thread([this, timeout, late] {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, timeout, [this] { return has_ended_; })) return;
      late(fmt::format(
          "MPI did not connect the processes within {:g} s; one of them may hang, or may not be this program",
          timeout.count()));
    });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    ended_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

// Every operation is started without blocking and then tested until it is complete. That allows a time-out, and a process
// that waits leaves its core to others.
class Mpi : public Communicator {
 public:
  Mpi(Seconds timeout, const std::function<void(std::string)>& late) {
    set_timeout(timeout);
    int provided = 0, rank = 0, size = 0;
    {
      const Watch watch(timeout, late);
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    rank_ = rank;
    size_ = size;
    const std::string started = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (started == std::to_string(size)) return;
    MPI_Finalize();
    throw Error(fmt::format(
        "OMPI_COMM_WORLD_SIZE: expected the number of processes that MPI has connected, {}, got '{}'; start "
        "the program with the mpirun of the Open MPI that it was built with",
        size, started));
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string transport() const override { return "MPI"; }
  at::Device device() const override { return at::kCPU; }

  Pending begin_sum(const Tensor& values) override { return all_reduce(values, MPI_SUM, "a sum"); }
  void maximum(Tensor& values) override { all_reduce(values, MPI_MAX, "a maximum").wait(); }

  void broadcast(Tensor& values, int64_t root) override {
    expect_flat(values);
    char* data = static_cast<char*>(values.mutable_data_ptr());
    for (int64_t first = 0; first < values.numel(); first += kMostElements) {
      const auto count = static_cast<int>(std::min(kMostElements, values.numel() - first));
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibcast(data + first * values.itemsize(), count, type_of(values), static_cast<int>(root), MPI_COMM_WORLD,
                       &request),
            "MPI_Ibcast");
      wait(request, "a broadcast");
    }
  }

  Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& counts) override {
    expect_flat(values);
    struct Message {
      std::vector<int> lengths, offsets;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    auto message = std::make_shared<Message>(Message{as_counts(counts), offsets_of(counts)});
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.mutable_data_ptr(), message->lengths.data(),
                          message->offsets.data(), type_of(values), MPI_COMM_WORLD, &message->request),
          "MPI_Iallgatherv");
    return {[this, message, values] {
      wait(message->request, "a gather");
      return values;
    }};
  }

  // Open MPI works on messages only inside its own functions; any of them will do.
  void progress() override {
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  void finish() override { check(MPI_Finalize(), "MPI_Finalize"); }

  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 protected:
  Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) override {
    struct Message {
      Tensor input, output;
      std::vector<int> sent, sent_at, received, received_at;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    auto message = std::make_shared<Message>();
    message->input = input.contiguous();
    message->output = at::empty({c10::sum_integers(received)}, input.options());
    message->sent = as_counts(sent), message->sent_at = offsets_of(sent);
    message->received = as_counts(received), message->received_at = offsets_of(received);
    check(MPI_Ialltoallv(message->input.const_data_ptr(), message->sent.data(), message->sent_at.data(), type_of(input),
                         message->output.mutable_data_ptr(), message->received.data(), message->received_at.data(),
                         type_of(input), MPI_COMM_WORLD, &message->request),
          "MPI_Ialltoallv");
    return {[this, message] {
      wait(message->request, "an exchange");
      return message->output;
    }};
  }

 private:
  static void expect_flat(const Tensor& values) {
    TORCH_CHECK(values.is_cpu() && values.is_contiguous(), "MPI: expected a contiguous tensor on the CPU, got one on ",
                values.device());
  }

  Pending all_reduce(const Tensor& values, MPI_Op operation, const char* what) const {
    expect_flat(values);
    char* data = static_cast<char*>(values.mutable_data_ptr());
    auto requests = std::make_shared<std::vector<MPI_Request>>();
    for (int64_t first = 0; first < values.numel(); first += kMostElements) {
      const auto count = static_cast<int>(std::min(kMostElements, values.numel() - first));
      check(MPI_Iallreduce(MPI_IN_PLACE, data + first * values.itemsize(), count, type_of(values), operation,
                           MPI_COMM_WORLD, &requests->emplace_back(MPI_REQUEST_NULL)),
            "MPI_Iallreduce");
    }
    return {[this, requests, values, what] {
      for (auto& request : *requests) wait(request, what);
      return values;
    }};
  }

  void wait(MPI_Request& request, const char* what) const {
    constexpr int kSpins = 200;
    const auto begin = Clock::now();
    for (int tries = 0;; tries = std::min(tries + 1, kSpins)) {
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      if (tries < kSpins) continue;
      if (Clock::now() - begin > timeout()) {
        throw PeerError(
            fmt::format("another process did not take part in {} within {:g} s; it may hang, or be busy for "
                        "longer than run.peer_timeout",
                        what, timeout().count()));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  int64_t rank_ = 0, size_ = 1;
};

}  // namespace

std::shared_ptr<Communicator> start_mpi(Communicator::Seconds timeout, const std::function<void(std::string)>& late) {
  return std::make_shared<Mpi>(timeout, late);
}

Transport mpi_transport() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));
  return {"MPI", true, version.substr(0, version.find(','))};
}

}  // namespace prism::dist
