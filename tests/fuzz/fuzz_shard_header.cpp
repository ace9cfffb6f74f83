// Any bytes as a token shard and as the identity beside it: refused with prism::Error or accepted with sizes that fit.
#include <cstdlib>

#include "prism/data/shards.h"
#include "prism/io/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prism::data;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const ShardHeader header = check_shard(bytes, "input");
    if (kShardHeaderBytes + static_cast<size_t>(header.tokens * header.token_bytes) != size) std::abort();
  } catch (const prism::Error&) {
  }
  try {
    const Identity identity = identity_from_json({reinterpret_cast<const char*>(data), size}, "input");
    if (identity_from_json(to_json(identity), "output") != identity) std::abort();
  } catch (const prism::Error&) {
  }
  return 0;
}
