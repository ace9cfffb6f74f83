// For tests against other implementations:
//   safetensors_tool dump FILE          prints metadata and tensors, data in hexadecimal, as one JSON object
//   safetensors_tool rewrite FILE OUT   reads FILE and writes it again as OUT
// Refused input gives exit status 2 and a message.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "prism/io/error.h"
#include "prism/io/safetensors.h"

namespace {

using prism::io::SafetensorsFile;

std::string hexadecimal(const prism::io::TensorView& tensor) {
  std::string text;
  for (size_t i = 0; i < tensor.bytes; ++i) fmt::format_to(std::back_inserter(text), "{:02x}", tensor.data[i]);
  return text;
}

void dump(const SafetensorsFile& file) {
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& tensor : file.tensors()) {
    tensors[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data", hexadecimal(tensor)}};
  }
  fmt::print("{}\n", nlohmann::json{{"metadata", file.metadata()}, {"tensors", tensors}}.dump());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 2 && arguments[0] == "dump") {
      dump(SafetensorsFile(arguments[1]));
    } else if (arguments.size() == 3 && arguments[0] == "rewrite") {
      const SafetensorsFile file(arguments[1]);
      prism::io::write_safetensors(arguments[2], file.tensors(), file.metadata());
    } else {
      throw prism::Error("expected: safetensors_tool dump FILE | rewrite FILE OUT");
    }
  } catch (const prism::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
