#include <cstdlib>

#include "prism/dist/transports.h"

namespace prism::dist {

std::shared_ptr<Communicator> start_mpi(Communicator::Seconds /*timeout*/,
                                        const std::function<void(std::string)>& /*late*/) {
  if (std::string(std::getenv("OMPI_COMM_WORLD_SIZE")) == "1") return one_process();
  throw Error("mpirun started several processes, but this build has no MPI; install libopenmpi-dev and build again");
}

Transport mpi_transport() { return {"MPI", false, "install libopenmpi-dev and build again"}; }

}  // namespace prism::dist
