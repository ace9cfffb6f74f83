// Runs a fuzz target over the files of a folder, without libFuzzer: replay_NAME FOLDER. Fails by crashing.
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "prism/io/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argc == 2 ? argv[1] : "")) {
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);  // names the culprit of a crash
    const auto bytes = prism::io::read_file(entry.path());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++inputs;
  }
  return inputs > 0 ? 0 : 1;
}
