# Decides whether `prism train` is compiled with MPI: PRISM_WITH_MPI.
#   AUTO  where MPI is found
#   ON    always; without MPI that is an error
#   OFF   never

set_property(CACHE PRISM_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT PRISM_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PRISM_MPI must be AUTO, ON or OFF, got '${PRISM_MPI}'")
endif()

set(PRISM_WITH_MPI FALSE)
if(NOT PRISM_MPI STREQUAL "OFF" AND NOT SKBUILD)  # a wheel has no trainer
  enable_language(C)  # FindMPI compiles C to look at the library that C++ uses too
  find_package(MPI COMPONENTS C QUIET)
  if(MPI_C_FOUND)
    set(PRISM_WITH_MPI TRUE)
  elseif(PRISM_MPI STREQUAL "ON")
    message(FATAL_ERROR "PRISM_MPI is ON, but no MPI was found; install libopenmpi-dev")
  endif()
endif()
