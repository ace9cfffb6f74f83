#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "prism/io/error.h"
#include "prism/optim/exchange.h"

namespace prism::dist {

// Thrown by a collective operation when another process is gone or does not answer in time.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Marks an exception that all processes throw together (`together` below): they can still end in an orderly way.
class Agreed {
 public:
  virtual ~Agreed() = default;
};
class AgreedError : public Error, public Agreed {
 public:
  using Error::Error;
};
class AgreedFailure : public std::runtime_error, public Agreed {
 public:
  using std::runtime_error::runtime_error;
};

// The processes of a training run and what they do together. All of them must make the same calls in the same order. A
// collective operation that is not complete after the time-out throws PeerError.
class Communicator : public Exchange {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr Seconds kTimeout{600};

  // "one process", "MPI" or "NCCL".
  virtual std::string transport() const = 0;

  // The device whose tensors the operations take.
  virtual at::Device device() const = 0;

  // Returns true if there can be other processes. With one process of MPI or NCCL it is true as well, so that a test
  // with one process takes the same path.
  virtual bool is_distributed() const { return true; }

  // Starts to replace each value by its sum over all ranks. The order of the additions is the transport's. `values` may
  // be read after `wait`, which returns them.
  virtual Pending begin_sum(const Tensor& values) = 0;
  void sum(const Tensor& values) { begin_sum(values).wait(); }

  // The flat tensor `values` consists of one segment for each rank, counts[r] elements of rank r. Starts to replace the
  // segments of the other ranks by theirs.
  virtual Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& counts) = 0;
  void all_gather(const Tensor& values, const std::vector<int64_t>& counts) { begin_all_gather(values, counts).wait(); }

  // Moves messages under way forward, where the transport does that only when it is called.
  virtual void progress() {}

  // Ends the connection. All ranks call it.
  virtual void finish() = 0;

  // Ends this process and, as far as the launcher allows, all others.
  [[noreturn]] virtual void abort(int status) = 0;

  void set_timeout(Seconds timeout) { timeout_ = timeout; }
  Seconds timeout() const { return timeout_; }

  // Returns the text of each rank, on all ranks.
  std::vector<std::string> gather(const std::string& text);

 private:
  Seconds timeout_ = kTimeout;
};

// This process alone: no operation does anything.
std::shared_ptr<Communicator> one_process();

// Connects the processes that `mpirun` (MPI) or `torchrun` (NCCL) started; without a launcher returns one_process().
// Throws prism::Error if the launcher's transport is not part of this build, or if MPI and the launcher do not agree on
// the number of processes; PeerError if the others cannot be reached within the time-out. MPI cannot be interrupted while
// it waits for the others: it calls `late` with the message on another thread, which must end this process.
std::shared_ptr<Communicator> start(Communicator::Seconds timeout = Communicator::kTimeout,
                                    const std::function<void(std::string)>& late = {});

// Returns the communicator for tensors on `device`: `all` itself on its own device, or NCCL for a GPU.
std::shared_ptr<Communicator> for_device(const std::shared_ptr<Communicator>& all, at::Device device);

// The GPU that this process should use if none is chosen: the launcher's number of the process on its machine, or −1.
int64_t local_rank();

// A transport and what this build can do with it, for `prism doctor`.
struct Transport {
  std::string name;
  bool is_built = false;
  std::string text;  // the library's version, or how to get it
};
std::vector<Transport> transports();

// A failure of one process, told to the others.
struct Fault {
  int status = 0;  // 0: none, 2: the user's mistake, 1: any other
  std::string text;
};

// Returns the exception that is being handled as a fault.
Fault current_fault();

// Throws on all ranks if any has a fault: AgreedError for a mistake of the user, else AgreedFailure, with the text of
// the first rank that has one on rank 0 and without text on the others, so that it is printed once.
void throw_together(Communicator& all, const Fault& fault);

// Runs `work` and waits for all ranks to have run it. If it throws on any rank, all ranks throw.
template <class Work>
void together(Communicator& all, const Work& work) {
  if (!all.is_distributed()) return work();
  Fault fault;
  try {
    work();
  } catch (const PeerError&) {  // the others cannot be told
    throw;
  } catch (const Agreed&) {  // they know
    throw;
  } catch (...) {
    fault = current_fault();
  }
  throw_together(all, fault);
}

// Throws on all ranks if `text` is not the same on all: "WHAT differs: ... on process 0, ... on process 1".
void expect_equal(Communicator& all, const std::string& what, const std::string& text);

}  // namespace prism::dist
