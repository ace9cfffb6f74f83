#pragma once

#include "prism/cli/command.h"

namespace prism::cli {

// The commands of `prism tokenizer`.
Command tokenizer_train_command();
Command tokenizer_encode_command();
Command tokenizer_decode_command();
Command tokenizer_info_command();

// How `encode` writes token ids and `decode` reads them: as text or JSON (decode tells them apart by itself), or as in
// the body of a token shard: little-endian, of 2 bytes where the vocabulary has at most 65,536 tokens, else of 4.
enum class IdFormat { kText, kJson, kBinary };

}  // namespace prism::cli
