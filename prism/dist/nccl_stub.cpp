#include <cstdlib>

#include "prism/dist/transports.h"

namespace prism::dist {

std::shared_ptr<Communicator> start_nccl(Communicator::Seconds /*timeout*/) {
  if (std::string(std::getenv("WORLD_SIZE")) == "1") return one_process();
  throw Error(
      "WORLD_SIZE and RANK say that torchrun started several processes, but this build has no NCCL; on CPUs start them "
      "with mpirun, for GPUs build with CUDA");
}

std::shared_ptr<Communicator> nccl_beside(const std::shared_ptr<Communicator>& /*all*/, at::Device device) {
  throw Error("several processes on " + device.str() + " need NCCL, which this build does not have; build with CUDA");
}

Transport nccl_transport() { return {"NCCL", false, "part of builds with CUDA"}; }

}  // namespace prism::dist
