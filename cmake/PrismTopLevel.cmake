# Settings for building Prism itself, not for projects that include it.

set_property(CACHE PRISM_SANITIZE PROPERTY STRINGS "" "address,undefined")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Type of build" FORCE)
endif()

if(SKBUILD)  # pip install: the interpreter that builds the wheel
  set(PRISM_PYTHON "${Python_EXECUTABLE}")
elseif(NOT PRISM_PYTHON AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(PRISM_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python")
elseif(PRISM_PYTHON MATCHES "/")  # a bare name is looked up in PATH
  cmake_path(ABSOLUTE_PATH PRISM_PYTHON BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
endif()

# Libraries from tools/stage_deps.sh, for machines without the Debian packages.
if(EXISTS "${PROJECT_SOURCE_DIR}/.deps")
  list(PREPEND CMAKE_PREFIX_PATH "${PROJECT_SOURCE_DIR}/.deps")
endif()

find_program(PRISM_CCACHE ccache)
if(PRISM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PRISM_CCACHE}")
endif()

# An installed program looks for torch's libraries where they were at build time.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
