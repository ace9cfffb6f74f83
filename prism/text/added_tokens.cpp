#include "prism/text/added_tokens.h"

#include <algorithm>

#include "prism/text/unicode.h"
#include "prism/text/utf8.h"

namespace prism::text {

namespace {

bool begins_with(std::string_view text, CodePointProperty property) {
  if (text.empty()) return false;
  const char* p = text.data();
  return (code_point_properties()[next_code_point(p)] & property) != 0;
}

bool ends_with(std::string_view text, CodePointProperty property) {
  if (text.empty()) return false;
  const char* p = previous_character(text.data() + text.size());
  return (code_point_properties()[next_code_point(p)] & property) != 0;
}

// The length of `text` without its trailing blanks, but at least `floor`.
size_t without_trailing_blanks(std::string_view text, size_t floor) {
  size_t end = text.size();
  while (end > floor && ends_with(text.substr(0, end), kSpace)) {
    end = static_cast<size_t>(previous_character(text.data() + end) - text.data());
  }
  return std::max(end, floor);
}

size_t after_blanks(std::string_view text, size_t begin) {
  const char* p = text.data() + begin;
  const char* end = text.data() + text.size();
  for (const char* next = p; p < end; p = next) {
    if (!(code_point_properties()[next_code_point(next)] & kSpace)) break;
  }
  return static_cast<size_t>(p - text.data());
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.content < b.content; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    auto& [begin, end] = by_first_byte_[static_cast<unsigned char>(tokens_[i].content.front())];
    if (begin == end) {
      begin = i;
      first_bytes_ += tokens_[i].content.front();
    }
    end = i + 1;
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view rest) const {
  const auto byte_at = [](size_t depth) {
    return [depth](const AddedToken& token) { return static_cast<unsigned char>(token.content[depth]); };
  };
  const auto [first, last] = by_first_byte_[static_cast<unsigned char>(rest.front())];
  auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(first);  // those that begin with rest[0 … depth)
  auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(last);
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->content.size() == depth) longest = &*begin++;
    if (depth == rest.size()) break;
    const auto byte = static_cast<unsigned char>(rest[depth]);
    begin = std::ranges::lower_bound(begin, end, byte, {}, byte_at(depth));
    end = std::ranges::upper_bound(begin, end, byte, {}, byte_at(depth));
  }
  return longest;
}

bool AddedTokenFinder::find(std::string_view text, size_t from, Match& match) const {
  for (; !tokens_.empty() && from < text.size(); ++from) {
    if (first_bytes_.size() == 1) from = std::min(text.find(first_bytes_.front(), from), text.size() - 1);
    if (const AddedToken* token = longest_at(text.substr(from))) {
      match = {token, from, from + token->content.size()};
      return true;
    }
  }
  return false;
}

void AddedTokenFinder::split(std::string_view text, bool specials_are_text,
                             const std::function<void(std::string_view)>& piece,
                             const std::function<void(const AddedToken&)>& token) const {
  size_t done = 0;
  Match match{};
  for (size_t from = 0; find(text, from, match); from = match.end) {
    if (match.token->special && specials_are_text) continue;
    if (match.token->single_word &&
        (ends_with(text.substr(0, match.begin), kWord) || begins_with(text.substr(match.end), kWord))) {
      continue;
    }
    const size_t begin = match.token->lstrip ? without_trailing_blanks(text.substr(0, match.begin), done) : match.begin;
    if (done < begin) piece(text.substr(done, begin - done));
    token(*match.token);
    done = match.token->rstrip ? after_blanks(text, match.end) : match.end;
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace prism::text
