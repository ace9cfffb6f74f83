#include "prism/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/io/json.h"
#include "prism/text/byte_level.h"
#include "prism/text/unicode.h"
#include "prism/text/utf8.h"

namespace prism::text {

namespace {

constexpr TokenId kGreatestId = (TokenId{1} << 21) - 1;

// A hash of values with unambiguous boundaries.
class Fingerprint {
 public:
  void add(uint64_t value) { hasher_.update({reinterpret_cast<const char*>(&value), sizeof value}); }
  void add(std::string_view text) {
    add(text.size());
    hasher_.update(text);
  }
  std::string digest() const { return hasher_.digest(); }

 private:
  io::Hasher hasher_;
};

}  // namespace

Vocabulary::Vocabulary(TokenizerParts parts, std::string_view where)
    : normalizer(parts.normalizer), pre_split(parts.pre_split), ignore_merges(parts.ignore_merges), where_(where) {
  add_model_tokens(parts.vocabulary, parts.added_tokens.size());
  find_byte_tokens();
  add_merges(parts.merges);
  add_added_tokens(std::move(parts.added_tokens));
}

const TokenId* Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? nullptr : &found->second;
}

void Vocabulary::add_model_tokens(std::vector<std::pair<std::string, TokenId>>& vocabulary, size_t added_tokens) {
  TokenId greatest = 0;
  for (const auto& [token, id] : vocabulary) {
    check_text(token);
    if (id > kGreatestId) {
      throw Error(
          fmt::format("{}: token {} has id {}; at most {} is possible", where_, io::quote(token), id, kGreatestId));
    }
    greatest = std::max(greatest, id);
  }
  tokens_.reserve(greatest + 1 + added_tokens);  // ids_ holds views of it, so it must not move
  tokens_.resize(greatest + 1);
  ids_.reserve(vocabulary.size() + added_tokens);
  model_size_ = vocabulary.size();
  for (auto& [text, id] : vocabulary) {
    Token& token = tokens_[id];
    if (token.in_model) {
      throw Error(
          fmt::format("{}: tokens {} and {} have the same id {}", where_, io::quote(token.text), io::quote(text), id));
    }
    token = {std::move(text), {}, true, false};
    token.bytes = characters_to_bytes(token.text);
    if (!ids_.emplace(token.text, id).second) {
      throw Error(fmt::format("{}: token {} appears twice", where_, io::quote(token.text)));
    }
  }
}

void Vocabulary::check_text(std::string_view token) const {
  if (token.empty()) throw Error(fmt::format("{}: a token is empty", where_));
  std::string storage;
  if (repair_utf8(token, storage) != token) {
    throw Error(fmt::format("{}: token {} is not valid UTF-8", where_, io::quote(token)));
  }
}

void Vocabulary::find_byte_tokens() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = bytes_to_characters(std::string(1, static_cast<char>(byte)));
    const TokenId* id = find(token);
    if (id == nullptr) {
      throw Error(fmt::format("{}: the vocabulary lacks byte 0x{:02X}, written {}; a byte-level one has all 256",
                              where_, byte, io::quote(token)));
    }
    byte_tokens_[byte] = *id;
  }
}

void Vocabulary::add_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<MergeRule> rules;
  rules.reserve(merges.size());
  for (const auto& merge : merges) {
    const auto id_of = [&](const std::string& token) {
      const TokenId* id = find(token);
      if (id == nullptr) {
        throw Error(fmt::format("{}: merge {} ({} {}): {} is not in the vocabulary", where_, rules.size() + 1,
                                io::quote(merge.first), io::quote(merge.second), io::quote(token)));
      }
      return *id;
    };
    rules.push_back({id_of(merge.first), id_of(merge.second), id_of(merge.first + merge.second)});
  }
  // If a pair is listed twice, the later position counts, as in a map filled in order.
  std::unordered_set<uint64_t> seen(rules.size());
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (seen.insert(uint64_t{rule->left} << 32 | rule->right).second) merges_.push_back(*rule);
  }
  std::reverse(merges_.begin(), merges_.end());
}

// The id of an added token is that of its content in the vocabulary; otherwise it follows all ids so far. `tokenizers`
// assigns ids like this whatever the file says, so a file that says otherwise would have other ids there than here.
TokenId Vocabulary::expected_id(const AddedToken& token, TokenId next) const {
  const TokenId* known = find(token.content);
  if (known != nullptr) return *known;
  if (next < tokens_.size() && tokens_[next].in_model) {
    throw Error(fmt::format("{}: added token {} would share id {} with {}, because the vocabulary skips ids", where_,
                            io::quote(token.content), next, io::quote(tokens_[next].text)));
  }
  return next;
}

// Throws if one token includes the blanks after it and another begins with a blank: both would claim the blanks
// between.
void Vocabulary::check_blanks(const std::vector<AddedToken>& added_tokens) const {
  const auto begins_with_blank = [](const AddedToken& token) {
    const char* p = token.content.data();
    return (code_point_properties()[next_code_point(p)] & kSpace) != 0;
  };
  const auto greedy = std::ranges::find_if(added_tokens, &AddedToken::rstrip);
  const auto blank = std::ranges::find_if(added_tokens, begins_with_blank);
  if (greedy != added_tokens.end() && blank != added_tokens.end()) {
    throw Error(fmt::format("{}: added token {} has \"rstrip\" while {} begins with a blank, which is not supported",
                            where_, io::quote(greedy->content), io::quote(blank->content)));
  }
}

void Vocabulary::add_added_tokens(std::vector<AddedToken> added_tokens) {
  auto next = static_cast<TokenId>(model_size_);
  std::vector<bool> seen(tokens_.size() + added_tokens.size());
  std::string storage;
  for (const AddedToken& added : added_tokens) {
    const std::string name = io::quote(added.content);
    check_text(added.content);
    if (added.normalized && normalizer == Normalizer::Nfc && nfc(added.content, storage) != added.content) {
      throw Error(
          fmt::format("{}: added token {} is \"normalized\" but not in NFC, which is not supported", where_, name));
    }
    const TokenId expected = expected_id(added, next);
    if (added.id != expected) {
      throw Error(fmt::format("{}: added token {} has id {} where it must be {}", where_, name, added.id, expected));
    }
    if (added.id >= tokens_.size()) tokens_.resize(added.id + 1);
    if (seen[added.id]) throw Error(fmt::format("{}: added token {} appears twice", where_, name));
    seen[added.id] = true;
    Token& token = tokens_[added.id];
    if (!token.in_model) {
      token = {added.content, characters_to_bytes(added.content), false, false};
      ids_.emplace(token.text, added.id);
    }
    token.special = added.special;
    if (added.id >= model_size_) next = std::max(next, added.id + 1);
  }
  check_blanks(added_tokens);
  std::ranges::sort(added_tokens, {}, &AddedToken::id);
  added_tokens_ = std::move(added_tokens);
}

std::string Vocabulary::hash() const {
  Fingerprint fingerprint;
  fingerprint.add("prism byte-level bpe 1");
  fingerprint.add(static_cast<uint64_t>(normalizer));
  fingerprint.add(static_cast<uint64_t>(pre_split));
  fingerprint.add(static_cast<uint64_t>(ignore_merges));
  fingerprint.add(tokens_.size());
  for (const Token& token : tokens_) {
    fingerprint.add(token.text);
    fingerprint.add(static_cast<uint64_t>(token.in_model));
  }
  fingerprint.add(merges_.size());
  for (const MergeRule& rule : merges_) fingerprint.add(uint64_t{rule.left} << 32 | rule.right);
  fingerprint.add(added_tokens_.size());
  for (const AddedToken& added : added_tokens_) {
    fingerprint.add(added.id);
    for (const bool flag : {added.single_word, added.lstrip, added.rstrip, added.normalized, added.special}) {
      fingerprint.add(static_cast<uint64_t>(flag));
    }
  }
  return fingerprint.digest();
}

}  // namespace prism::text
