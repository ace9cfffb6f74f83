#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "prism/text/tokenizer.h"
#include "prism/text/vocabulary.h"

namespace prism::text {

struct Tokenizer::State {
  State(TokenizerParts parts, std::string_view where);

  const Vocabulary vocabulary;
  const BpeModel model;
  const AddedTokenFinder in_original, in_normalized;
  const std::string hash;

  // Returns an encoder for one call. Idle encoders are kept and reused, because their caches are valuable.
  std::unique_ptr<BpeEncoder> take_encoder() const;
  void give_back(std::unique_ptr<BpeEncoder> encoder) const;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<BpeEncoder>> idle;
};

}  // namespace prism::text
