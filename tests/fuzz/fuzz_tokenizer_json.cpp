// Any bytes as tokenizer.json, and any JSON as a merge patch (RFC 7396) of a good one, since random bytes hardly ever
// make a file with all 256 byte tokens: refused with prism::Error, or a tokenizer that survives writing, encoding and
// decoding.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/text/byte_level.h"
#include "prism/text/tokenizer.h"

namespace {

using prism::text::TokenId;
using prism::text::Tokenizer;

nlohmann::json good_document() {
  prism::text::TokenizerParts parts;
  for (TokenId byte = 0; byte < 256; ++byte) {
    parts.vocabulary.emplace_back(prism::text::bytes_to_characters(std::string(1, static_cast<char>(byte))), byte);
  }
  parts.vocabulary.emplace_back("ab", 256);
  parts.merges.emplace_back("a", "b");
  parts.added_tokens.push_back({.content = "<end>", .id = 257});
  return nlohmann::json::parse(Tokenizer(parts).to_json());
}

void use(std::string_view json, std::string_view text) {
  const Tokenizer tokenizer = Tokenizer::from_json(json);
  if (Tokenizer::from_json(tokenizer.to_json()).hash() != tokenizer.hash()) std::abort();
  tokenizer.decode(tokenizer.encode(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::json good = good_document();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    use(bytes, bytes);
  } catch (const prism::Error&) {
  }
  try {
    nlohmann::json document = good;
    document.merge_patch(prism::io::parse_json(bytes, "input"));
    use(document.dump(), bytes);
  } catch (const prism::Error&) {
  }
  return 0;
}
