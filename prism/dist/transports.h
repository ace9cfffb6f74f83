#pragma once

#include <functional>
#include <string>

#include "prism/dist/communicator.h"

// The transports of a build. A build without one links a stub in its place.

namespace prism::dist {

// For processes that mpirun started. Calls `late` as `start` does.
std::shared_ptr<Communicator> start_mpi(Communicator::Seconds timeout, const std::function<void(std::string)>& late);
Transport mpi_transport();

std::shared_ptr<Communicator> start_nccl(Communicator::Seconds timeout);  // for processes that torchrun started
std::shared_ptr<Communicator> nccl_beside(const std::shared_ptr<Communicator>& all, at::Device device);
Transport nccl_transport();

}  // namespace prism::dist
