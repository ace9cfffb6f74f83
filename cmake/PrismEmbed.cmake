# prism_embed(<out.cpp> HEADER <header> NAMESPACE <namespace> FUNCTION <name> FOLDER <folder> FILES <file>...)
# Generates, at build time, a source file that contains the bytes of the files (embed_files.cmake).
set(PRISM_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake")
function(prism_embed out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;NAMESPACE;FUNCTION;FOLDER" "FILES")
  list(TRANSFORM arg_FILES PREPEND "${arg_FOLDER}/" OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${out}" "-DHEADER=${arg_HEADER}" "-DNAMESPACE=${arg_NAMESPACE}"
      "-DFUNCTION=${arg_FUNCTION}" "-DFOLDER=${arg_FOLDER}" "-DNAMES=${arg_FILES}" -P "${PRISM_EMBED_SCRIPT}"
    DEPENDS ${paths} "${PRISM_EMBED_SCRIPT}"
    COMMENT "Embedding ${arg_FUNCTION}"
    VERBATIM)
  # Large tables, compiled alone so that a change of a file recompiles nothing else.
  set_source_files_properties("${out}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
