// Any bytes as a safetensors file: refused with prism::Error, or views that lie side by side inside the bytes.
#include <cstdlib>

#include "prism/io/error.h"
#include "prism/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prism::io;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  try {
    const auto content = parse_safetensors({begin, size}, "input");
    const std::byte* end = begin + size;
    for (auto tensor = content.tensors.rbegin(); tensor != content.tensors.rend(); ++tensor) {
      if (tensor->data + tensor->bytes != end || tensor->data < begin + 8) std::abort();
      if (tensor_bytes(tensor->dtype, tensor->shape, "view") != tensor->bytes) std::abort();
      end = tensor->data;
    }
  } catch (const prism::Error&) {
  }
  return 0;
}
