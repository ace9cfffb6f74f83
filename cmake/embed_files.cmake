# cmake -DOUT=<file.cpp> -DHEADER=<header> -DNAMESPACE=<namespace> -DFUNCTION=<name> -DFOLDER=<folder> "-DNAMES=<file>;<file>…" -P embed_files.cmake
# Writes a source file that defines `std::span<const io::EmbeddedFile> FUNCTION()`, declared in HEADER: the bytes of each file.
set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS NAMES)
  file(READ "${FOLDER}/${name}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n    " bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n    ${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(kFile${index}), sizeof(kFile${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
set(source "#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {
${arrays}}  // namespace

std::span<const io::EmbeddedFile> ${FUNCTION}() {
  static const io::EmbeddedFile all[] = {
${rows}  };
  return all;
}

}  // namespace ${NAMESPACE}
")
file(WRITE "${OUT}" "${source}")
