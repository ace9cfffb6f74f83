# Finds the Arrow C++ library inside the Python package pyarrow and defines the imported target PyArrow::parquet.
#
# Searches the packages of the interpreter PRISM_PYTHON without importing pyarrow. The wheel has headers in include/ and
# libraries with the version in their names: libarrow.so.2600 for Arrow 26.0.

include(FindPackageHandleStandardArgs)

if(PRISM_PYTHON)
  execute_process(
    COMMAND "${PRISM_PYTHON}" -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
    OUTPUT_VARIABLE _pyarrow_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(_pyarrow_root)
  find_path(PyArrow_INCLUDE_DIR parquet/file_reader.h HINTS "${_pyarrow_root}/include" NO_CACHE NO_DEFAULT_PATH)
  foreach(_library IN ITEMS arrow parquet)
    file(GLOB _found "${_pyarrow_root}/lib${_library}.so.[0-9]*")
    list(GET _found 0 PyArrow_${_library})
  endforeach()
endif()

find_package_handle_standard_args(PyArrow REQUIRED_VARS PyArrow_INCLUDE_DIR PyArrow_arrow PyArrow_parquet)

if(PyArrow_FOUND AND NOT TARGET PyArrow::parquet)
  foreach(_library IN ITEMS arrow parquet)
    add_library(PyArrow::${_library} SHARED IMPORTED)
    set_target_properties(PyArrow::${_library} PROPERTIES
      IMPORTED_LOCATION "${PyArrow_${_library}}"
      INTERFACE_INCLUDE_DIRECTORIES "${PyArrow_INCLUDE_DIR}")
  endforeach()
  set_property(TARGET PyArrow::parquet PROPERTY INTERFACE_LINK_LIBRARIES PyArrow::arrow)
endif()
