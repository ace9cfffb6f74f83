# Sets PRISM_WITH_CUDA, which says whether the CUDA kernels are compiled, from PRISM_CUDA:
#   AUTO  compile them if a CUDA compiler is found and torch has a CUDA backend
#   ON    compile them; fail without a CUDA compiler
#   OFF   do not; the library has no CUDA symbols

set_property(CACHE PRISM_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT PRISM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PRISM_CUDA must be AUTO, ON or OFF, got '${PRISM_CUDA}'")
endif()

set(PRISM_WITH_CUDA FALSE)
if(PRISM_CUDA STREQUAL "ON" OR (PRISM_CUDA STREQUAL "AUTO" AND EXISTS "${Torch_PREFIX}/lib/libtorch_cuda.so"))
  include(CheckLanguage)
  set(CMAKE_CUDA_ARCHITECTURES 80)  # each target names its own
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(PRISM_WITH_CUDA TRUE)
    if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
    endif()
    enable_language(CUDA)
  elseif(PRISM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PRISM_CUDA is ON, but no CUDA compiler was found; set -DCMAKE_CUDA_COMPILER=/path/to/nvcc")
  endif()
endif()
