# Finds LibTorch. Defines the imported targets Torch::torch (also in TORCH_LIBRARIES) and Torch::openmp, and the variables
# Torch_VERSION and Torch_PREFIX.
#
# Searches CMAKE_PREFIX_PATH (an unpacked LibTorch, or torch.utils.cmake_prefix_path), then the packages of the interpreter
# PRISM_PYTHON. If the project has already found torch with torch's own package, uses its target `torch`.
#
# Does not use torch's TorchConfig.cmake: with a CUDA wheel it requires a CUDA compiler, which C++ code that only calls
# ATen does not need, and it changes flags for the whole project.

include(FindPackageHandleStandardArgs)

if(NOT TARGET torch AND PRISM_PYTHON)
  execute_process(
    COMMAND "${PRISM_PYTHON}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _torch_from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

# CMAKE_PREFIX_PATH may name torch's root or, as torch.utils.cmake_prefix_path does, its share/cmake.
set(_torch_hints "")
if(TARGET torch)
  list(APPEND _torch_hints "${TORCH_INSTALL_PREFIX}")
else()
  foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND _torch_hints "${_prefix}" "${_prefix}/../..")
  endforeach()
  if(Torch_DIR)
    list(APPEND _torch_hints "${Torch_DIR}/../../..")
  endif()
  if(_torch_from_python)
    list(APPEND _torch_hints "${_torch_from_python}")
  endif()
endif()

find_path(_torch_include torch/csrc/api/include/torch/torch.h HINTS ${_torch_hints} PATH_SUFFIXES include NO_CACHE)
foreach(_library IN ITEMS torch torch_cpu c10)
  find_library(_torch_${_library} ${_library} HINTS "${_torch_include}/../lib" NO_CACHE NO_DEFAULT_PATH)
endforeach()

set(Torch_VERSION "")
if(_torch_include)
  get_filename_component(_torch_include "${_torch_include}" ABSOLUTE)
  get_filename_component(Torch_PREFIX "${_torch_include}" DIRECTORY)
  foreach(_part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${_torch_include}/torch/headeronly/version.h" _line REGEX "define TORCH_VERSION_${_part} ")
    string(REGEX MATCH "[0-9]+" _number "${_line}")
    list(APPEND Torch_VERSION "${_number}")
  endforeach()
  list(JOIN Torch_VERSION "." Torch_VERSION)
endif()

find_package_handle_standard_args(Torch
  REQUIRED_VARS _torch_torch _torch_torch_cpu _torch_c10 _torch_include
  VERSION_VAR Torch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "
  Run `make setup`, or name an interpreter that has torch with -DPRISM_PYTHON=python3,
  or an unpacked LibTorch with -DCMAKE_PREFIX_PATH=/path/to/libtorch.")

if(Torch_FOUND AND NOT TARGET Torch::torch)
  add_library(Torch::torch INTERFACE IMPORTED)
  if(TARGET torch)
    set_property(TARGET Torch::torch PROPERTY INTERFACE_LINK_LIBRARIES "${TORCH_LIBRARIES}")
  else()
    foreach(_library IN ITEMS torch_cpu c10)
      add_library(Torch::${_library} SHARED IMPORTED)
      set_property(TARGET Torch::${_library} PROPERTY IMPORTED_LOCATION "${_torch_${_library}}")
    endforeach()
    # libtorch.so defines no symbols, but it loads the CUDA backend, so the linker must keep it.
    set_target_properties(Torch::torch PROPERTIES
      INTERFACE_COMPILE_FEATURES cxx_std_20
      INTERFACE_INCLUDE_DIRECTORIES "${_torch_include};${_torch_include}/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES
        "Torch::torch_cpu;Torch::c10;-Wl,--push-state,--no-as-needed,\"${_torch_torch}\",--pop-state")
  endif()
endif()
if(NOT TARGET torch)
  set(TORCH_LIBRARIES Torch::torch)
endif()

# The OpenMP runtime: torch's copy if it has one, since a program must not load two.
if(Torch_FOUND AND NOT TARGET Torch::openmp)
  add_library(Torch::openmp INTERFACE IMPORTED)
  file(GLOB _torch_gomp "${_torch_include}/../lib/libgomp*.so*")
  if(_torch_gomp)
    list(GET _torch_gomp 0 _torch_gomp)
    set_property(TARGET Torch::openmp PROPERTY INTERFACE_LINK_LIBRARIES "${_torch_gomp}")
  else()
    set_property(TARGET Torch::openmp PROPERTY INTERFACE_LINK_OPTIONS -fopenmp)
  endif()
endif()
