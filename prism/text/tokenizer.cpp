#include "prism/text/tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <mutex>

#include "prism/io/error.h"
#include "prism/text/byte_level.h"
#include "prism/text/tokenizer_state.h"
#include "prism/text/unicode.h"
#include "prism/text/utf8.h"

namespace prism::text {

namespace {

BpeModel make_model(const Vocabulary& vocabulary) {
  BpeModel model{vocabulary.byte_tokens(), MergeTable(vocabulary.merges()), {}};
  if (vocabulary.ignore_merges) {
    const auto& tokens = vocabulary.tokens();
    for (TokenId id = 0; id < tokens.size(); ++id) {
      if (tokens[id].in_model && bytes_to_characters(tokens[id].bytes) == tokens[id].text)
        model.whole_words.emplace(tokens[id].bytes, id);
    }
  }
  return model;
}

AddedTokenFinder make_finder(const Vocabulary& vocabulary, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : vocabulary.added_tokens()) {
    if (token.normalized == normalized) tokens.push_back(token);
  }
  return AddedTokenFinder(std::move(tokens));
}

}  // namespace

Tokenizer::State::State(TokenizerParts parts, std::string_view where)
    : vocabulary(std::move(parts), where),
      model(make_model(vocabulary)),
      in_original(make_finder(vocabulary, false)),
      in_normalized(make_finder(vocabulary, true)),
      hash(vocabulary.hash()) {}

std::unique_ptr<BpeEncoder> Tokenizer::State::take_encoder() const {
  const std::lock_guard lock(mutex);
  if (idle.empty()) return std::make_unique<BpeEncoder>(model);
  auto encoder = std::move(idle.back());
  idle.pop_back();
  return encoder;
}

void Tokenizer::State::give_back(std::unique_ptr<BpeEncoder> encoder) const {
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(encoder));
}

Tokenizer::Tokenizer(TokenizerParts parts, std::string_view where)
    : state_(std::make_shared<const State>(std::move(parts), where)) {}

Tokenizer Tokenizer::with_end_of_text(std::string token) const {
  Tokenizer copy = *this;
  copy.end_of_text_ = std::move(token);
  return copy;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens specials) const {
  std::vector<TokenId> ids;
  encode(text, ids, specials);
  return ids;
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& out, SpecialTokens specials) const {
  if (text.size() > std::numeric_limits<uint32_t>::max() / 3) {  // broken bytes grow to three
    throw Error(fmt::format("tokenizer: a text of {} bytes is too long to encode at once; cut it", text.size()));
  }
  const State& state = *state_;
  const bool as_text = specials == SpecialTokens::Text;
  auto encoder = state.take_encoder();
  std::string repaired, normalized;
  const auto token = [&](const AddedToken& added) { out.push_back(added.id); };
  const auto words = [&](std::string_view stretch) {
    WordScanner scanner(state.vocabulary.pre_split, stretch);
    const char* end = stretch.data() + stretch.size();
    for (std::string_view word; scanner.next(word);) encoder->encode(word, end, out);
  };
  state.in_original.split(
      repair_utf8(text, repaired), as_text,
      [&](std::string_view stretch) {
        if (state.vocabulary.normalizer == Normalizer::Nfc) stretch = nfc(stretch, normalized);
        state.in_normalized.split(stretch, as_text, words, token);
      },
      token);
  state.give_back(std::move(encoder));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text, repaired;
  for (const TokenId id : ids) {
    if (!skip_special_tokens || !is_special(id)) text += bytes(id);
  }
  return std::string(repair_utf8(text, repaired));
}

std::string_view Tokenizer::bytes(TokenId id) const {
  const auto& tokens = state_->vocabulary.tokens();
  return id < tokens.size() ? std::string_view(tokens[id].bytes) : std::string_view();
}

int64_t Tokenizer::size() const { return static_cast<int64_t>(state_->vocabulary.tokens().size()); }

std::optional<TokenId> Tokenizer::id(std::string_view token) const {
  const TokenId* id = state_->vocabulary.find(token);
  return id == nullptr ? std::nullopt : std::optional(*id);
}

bool Tokenizer::is_special(TokenId id) const {
  const auto& tokens = state_->vocabulary.tokens();
  return id < tokens.size() && tokens[id].special;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return state_->vocabulary.added_tokens(); }

Normalizer Tokenizer::normalizer() const { return state_->vocabulary.normalizer; }

PreSplit Tokenizer::pre_split() const { return state_->vocabulary.pre_split; }

const std::string& Tokenizer::hash() const { return state_->hash; }

}  // namespace prism::text
