// Any bytes as tokenizer.json: refused with prism::Error, or a tokenizer that survives writing, encoding and decoding.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "prism/io/error.h"
#include "prism/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using prism::text::Tokenizer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(bytes);
    if (Tokenizer::from_json(tokenizer.to_json()).hash() != tokenizer.hash()) std::abort();
    tokenizer.decode(tokenizer.encode(bytes));
  } catch (const prism::Error&) {
  }
  return 0;
}
