#include "prism/data/shards.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "prism/io/error.h"
#include "prism/io/hash.h"

namespace prism::data {

namespace fs = std::filesystem;

namespace {

template <typename Token>
int64_t widen(const std::byte* in, std::span<int64_t> out) {
  int64_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Token token;
    std::memcpy(&token, in + i * sizeof(Token), sizeof(Token));
    out[i] = token;
    largest = std::max(largest, out[i]);
  }
  return largest;
}

}  // namespace

ShardHeader check_shard(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < kShardHeaderBytes) {
    throw Error(fmt::format("{}: expected a token shard, got {} bytes, fewer than its header of {}", name, file.size(),
                            kShardHeaderBytes));
  }
  int32_t words[3];
  std::memcpy(words, file.data(), sizeof(words));
  const int32_t magic = words[0], version = words[1], tokens = words[2];
  const auto* kind =
      std::ranges::find_if(kShardKinds, [&](const ShardKind& k) { return k.magic == magic && k.version == version; });
  if (kind == std::end(kShardKinds)) {
    throw Error(
        fmt::format("{}: expected a token shard (magic 20240520 version 1, or 20240801 version 7), got magic {} "
                    "version {}",
                    name, magic, version));
  }
  if (tokens <= 0) throw Error(fmt::format("{}: expected a positive number of tokens, got {}", name, tokens));
  const size_t expected = kShardHeaderBytes + static_cast<size_t>(tokens) * static_cast<size_t>(kind->token_bytes);
  if (file.size() != expected) {
    throw Error(fmt::format("{}: expected {} bytes for {} tokens, got {}; the file is {}", name, expected, tokens,
                            file.size(), file.size() < expected ? "truncated" : "longer than its header says"));
  }
  return {tokens, kind->token_bytes};
}

Shards::Shards(const fs::path& folder, std::string_view split, std::string_view tokenizer_hash)
    : identity_(read_identity(folder, split)) {
  if (!tokenizer_hash.empty() && identity_.tokenizer_hash != tokenizer_hash) {
    throw Error(
        fmt::format("{}: made with the tokenizer {}, but the tokenizer in use is {}; build the shards again or "
                    "use their tokenizer",
                    identity_path(folder, split).string(), identity_.tokenizer_hash, tokenizer_hash));
  }
  int64_t first = 0;
  for (const ShardEntry& entry : identity_.shards) {
    const fs::path path = folder / entry.file;
    io::MappedFile file(path);
    const ShardHeader header = check_shard(file.bytes(), path.string());
    if (header.tokens != entry.tokens) {
      throw Error(fmt::format("{}: expected {} tokens as {} says, got {}", path.string(), entry.tokens,
                              identity_path(folder, split).filename().string(), header.tokens));
    }
    if (header.token_bytes != token_bytes_for(identity_.vocab_size)) {
      throw Error(fmt::format("{}: expected tokens of {} bytes for a vocabulary of {}, got {}", path.string(),
                              token_bytes_for(identity_.vocab_size), identity_.vocab_size, header.token_bytes));
    }
    parts_.push_back({std::move(file), path.string(), header, first});
    first += header.tokens;
  }
  if (first == 0 || first != identity_.tokens) {
    throw Error(fmt::format("{}: expected {} tokens in all, its shards hold {}", identity_path(folder, split).string(),
                            identity_.tokens, first));
  }
}

void Shards::append(Shards other) {
  const Identity& added = other.identity_;
  if (added.tokenizer_hash != identity_.tokenizer_hash || added.vocab_size != identity_.vocab_size) {
    throw Error(fmt::format("{}: made with the tokenizer {}, but {} with {}; build them with one tokenizer",
                            other.parts_.front().name, added.tokenizer_hash, parts_.front().name,
                            identity_.tokenizer_hash));
  }
  for (Part& part : other.parts_) {
    part.first += identity_.tokens;
    parts_.push_back(std::move(part));
  }
  identity_.tokens += added.tokens;
  identity_.documents += added.documents;
  identity_.text_bytes += added.text_bytes;
  identity_.recipe = io::hash_bytes(identity_.recipe + added.recipe);
  identity_.sources.insert(identity_.sources.end(), added.sources.begin(), added.sources.end());
  identity_.shards.insert(identity_.shards.end(), added.shards.begin(), added.shards.end());
}

template <typename Body>
void Shards::for_each_part(int64_t first, int64_t count, Body body) const {
  if (first < 0 || count < 0 || first > tokens() || count > tokens() - first) {
    throw std::out_of_range(fmt::format("shards: tokens {} … {} of {}", first, first + count, tokens()));
  }
  auto part = std::ranges::upper_bound(parts_, first, {}, &Part::first) - 1;
  for (; count > 0; ++part) {
    const int64_t offset = first - part->first;
    const int64_t here = std::min(count, part->header.tokens - offset);
    body(*part, offset, here);
    first += here;
    count -= here;
  }
}

void Shards::read(int64_t first, std::span<int64_t> out) const {
  for_each_part(first, std::ssize(out), [&](const Part& part, int64_t offset, int64_t count) {
    read_part(part, offset, out.first(static_cast<size_t>(count)));
    out = out.subspan(static_cast<size_t>(count));
  });
}

void Shards::prefetch(int64_t first, int64_t count) const {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for_each_part(first, count, [&](const Part& part, int64_t offset, int64_t here) {
    const size_t begin = byte_offset(part, offset) / page * page;  // the mapping itself begins with a page
    const size_t end = byte_offset(part, offset + here);
    // This is only advice: if it is refused, the tokens are read anyway.
    ::madvise(const_cast<std::byte*>(part.file.bytes().data() + begin), end - begin, MADV_WILLNEED);
  });
}

size_t Shards::byte_offset(const Part& part, int64_t token) {
  return kShardHeaderBytes + static_cast<size_t>(token * part.header.token_bytes);
}

void Shards::read_part(const Part& part, int64_t first, std::span<int64_t> out) const {
  const std::byte* data = part.file.bytes().data() + byte_offset(part, first);
  const int64_t largest = part.header.token_bytes == 2 ? widen<uint16_t>(data, out) : widen<uint32_t>(data, out);
  if (largest >= identity_.vocab_size) {
    throw Error(fmt::format("{}: expected token ids below {}, got {} within tokens {} … {}; the file is damaged",
                            part.name, identity_.vocab_size, largest, first, first + static_cast<int64_t>(out.size())));
  }
}

void Shards::verify() const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto data = parts_[i].file.bytes().subspan(kShardHeaderBytes);
    const std::string got = io::hash_bytes({reinterpret_cast<const char*>(data.data()), data.size()});
    if (got == identity_.shards[i].hash) continue;
    throw Error(fmt::format("{}: expected tokens with XXH3 {}, got {}; the file is damaged", parts_[i].name,
                            identity_.shards[i].hash, got));
  }
}

}  // namespace prism::data
