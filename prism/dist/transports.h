#pragma once

#include "prism/dist/communicator.h"

// The transports of a build. A build without one links a stub in its place.

namespace prism::dist {

std::shared_ptr<Communicator> start_mpi();  // for processes that mpirun started
Transport mpi_transport();

std::shared_ptr<Communicator> start_nccl();  // for processes that torchrun started
std::shared_ptr<Communicator> nccl_beside(const std::shared_ptr<Communicator>& all, at::Device device);
Transport nccl_transport();

}  // namespace prism::dist
