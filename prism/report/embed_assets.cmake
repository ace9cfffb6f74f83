# cmake -DOUT=<file.cpp> -DFOLDER=<folder> "-DNAMES=<file>;<file>…" -P embed_assets.cmake
# Writes a source file with the bytes of each file, for prism/report/assets.h.
set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS NAMES)
  file(READ "${FOLDER}/${name}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n    " bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kAsset${index}[] = {\n    ${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(kAsset${index}), sizeof(kAsset${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
set(source "#include \"prism/report/assets.h\"

namespace prism::report {
namespace {
${arrays}}  // namespace

std::span<const Asset> assets() {
  static const Asset all[] = {
${rows}  };
  return all;
}

}  // namespace prism::report
")
file(WRITE "${OUT}" "${source}")
