#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <limits>

#include "prism/data/shards.h"
#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"

namespace prism::data {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are written in the machine's own byte order");

namespace {

constexpr size_t kShardBufferBytes = size_t{1} << 20;
constexpr std::string_view kTemporary = ".tmp";

std::array<int32_t, 256> make_header(int64_t token_bytes, int64_t tokens) {
  std::array<int32_t, 256> header{};
  const ShardKind& kind = kShardKinds[token_bytes == kShardKinds[0].token_bytes ? 0 : 1];
  header[0] = kind.magic;
  header[1] = kind.version;
  header[2] = static_cast<int32_t>(tokens);
  return header;
}

std::string_view bytes_of(const std::array<int32_t, 256>& header) {
  return {reinterpret_cast<const char*>(header.data()), kShardHeaderBytes};
}

bool belongs_to(std::string_view file, std::string_view split, std::string_view ending) {
  if (!file.starts_with(split) || !file.ends_with(ending) || file.size() <= split.size() + ending.size()) return false;
  const std::string_view middle = file.substr(split.size(), file.size() - split.size() - ending.size());
  return middle.starts_with('_') && middle.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

void remove_files(const fs::path& folder, std::string_view split, std::string_view ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (belongs_to(entry.path().filename().string(), split, ending)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path);
}

}  // namespace

struct ShardWriter::OpenShard {
  OpenShard(const fs::path& path, std::string name, int64_t token_bytes)
      : file(path, O_WRONLY | O_CREAT | O_TRUNC), entry{std::move(name), 0, {}} {
    file.write_all(bytes_of(make_header(token_bytes, 0)));
    buffer.reserve(kShardBufferBytes);
  }

  template <typename Token>
  void append(std::span<const uint32_t> tokens) {
    for (size_t done = 0; done < tokens.size();) {
      const size_t room = (kShardBufferBytes - buffer.size()) / sizeof(Token);
      const auto part = tokens.subspan(done, std::min(room, tokens.size() - done));
      const size_t old_size = buffer.size();
      buffer.resize(old_size + part.size() * sizeof(Token));
      auto* out = reinterpret_cast<Token*>(buffer.data() + old_size);
      std::ranges::transform(part, out, [](uint32_t token) { return static_cast<Token>(token); });
      done += part.size();
      if (buffer.size() == kShardBufferBytes) write_buffer();
    }
    entry.tokens += static_cast<int64_t>(tokens.size());
  }

  void write_buffer() {
    hash.update(buffer);
    file.write_all(buffer);
    buffer.clear();
  }

  // The count is known only now. Until then the header holds 0, which no reader accepts.
  void finish(int64_t token_bytes) {
    write_buffer();
    entry.hash = hash.digest();
    if (::lseek(file.get(), 0, SEEK_SET) != 0) io::throw_system_error("write", file.path(), errno);
    file.write_all(bytes_of(make_header(token_bytes, entry.tokens)));
    file.sync();
    file.close();
  }

  io::FileDescriptor file;
  ShardEntry entry;
  io::Hasher hash;
  std::string buffer;
};

int64_t token_bytes_for(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

ShardWriter::ShardWriter(fs::path folder, std::string split, int64_t vocab_size, int64_t shard_tokens)
    : folder_(std::move(folder)),
      split_(std::move(split)),
      vocab_size_(vocab_size),
      token_bytes_(token_bytes_for(vocab_size)),
      shard_tokens_(shard_tokens) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (vocab_size < 1 || vocab_size > kMost) {
    throw Error(fmt::format("data: expected a vocabulary size between 1 and {}, got {}", kMost, vocab_size));
  }
  if (shard_tokens < 1 || shard_tokens > kMost) {
    throw Error(fmt::format("data: expected between 1 and {} tokens in a shard, got {}", kMost, shard_tokens));
  }
  if (!fs::is_directory(folder_)) throw Error(fmt::format("{}: expected a folder for shards", folder_.string()));
  remove_files(folder_, split_, fmt::format(".bin{}", kTemporary));  // left by a process that was killed
}

ShardWriter::~ShardWriter() {
  if (committed_) return;
  std::error_code ignored;
  for (const ShardEntry& entry : written_) {
    fs::remove(temporary(entry.file), ignored);
    if (replacing_) fs::remove(folder_ / entry.file, ignored);
  }
  if (open_) fs::remove(temporary(open_->entry.file), ignored);
}

fs::path ShardWriter::temporary(const std::string& file) const {
  return folder_ / fmt::format("{}{}", file, kTemporary);
}

void ShardWriter::begin_shard() {
  const std::string file = fmt::format("{}_{:06}.bin", split_, written_.size());
  open_ = std::make_unique<OpenShard>(temporary(file), file, token_bytes_);
}

void ShardWriter::end_shard() {
  open_->finish(token_bytes_);
  written_.push_back(open_->entry);
  open_.reset();
}

void ShardWriter::append(std::span<const uint32_t> tokens) {
  if (tokens.empty()) return;
  if (const uint32_t largest = *std::ranges::max_element(tokens); largest >= vocab_size_) {
    throw Error(fmt::format("data: expected token ids below the vocabulary size {}, got {}", vocab_size_, largest));
  }
  while (!tokens.empty()) {
    if (!open_) begin_shard();
    const auto room = static_cast<size_t>(shard_tokens_ - open_->entry.tokens);
    const auto part = tokens.first(std::min(room, tokens.size()));
    token_bytes_ == 2 ? open_->append<uint16_t>(part) : open_->append<uint32_t>(part);
    tokens_ += static_cast<int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (open_->entry.tokens == shard_tokens_) end_shard();
  }
}

void ShardWriter::flush() {
  if (open_) end_shard();
}

Identity ShardWriter::commit(Identity identity) {
  flush();
  if (tokens_ == 0)
    throw Error(fmt::format("{}: expected tokens in the split \"{}\", got none", folder_.string(), split_));
  identity.split = split_;
  identity.vocab_size = vocab_size_;
  identity.tokens = tokens_;
  identity.shards = written_;
  replacing_ = true;
  fs::remove(identity_path(folder_, split_));
  remove_files(folder_, split_, ".bin");
  for (const ShardEntry& entry : written_) io::move_path(temporary(entry.file), folder_ / entry.file);
  io::sync_folder(folder_);
  io::write_file_atomically(identity_path(folder_, split_), to_json(identity));
  committed_ = true;
  return identity;
}

void remove_shards(const fs::path& folder, std::string_view split) {
  fs::remove(identity_path(folder, split));
  remove_files(folder, split, ".bin");
  remove_files(folder, split, fmt::format(".bin{}", kTemporary));
}

}  // namespace prism::data
