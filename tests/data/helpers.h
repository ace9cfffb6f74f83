#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "prism/data/build.h"
#include "prism/data/corpus.h"
#include "prism/io/error.h"
#include "tests/io/temporary_folder.h"

namespace prism::data {

using io::contains;
using io::message_of;
using io::TemporaryFolder;

inline std::string write(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Compresses the text into one gzip member.
inline std::string gzip(std::string_view text) {
  z_stream state{};
  deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - state.avail_out);
  deflateEnd(&state);
  return out;
}

// Compresses the text into one zstd frame of undeclared length, so that the window is as large as requested.
inline std::string zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* encoder = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(encoder, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) ZSTD_CCtx_setParameter(encoder, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  while (input.pos < input.size) ZSTD_compressStream2(encoder, &output, &input, ZSTD_e_continue);
  EXPECT_EQ(ZSTD_compressStream2(encoder, &output, &input, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(encoder);
  out.resize(output.pos);
  return out;
}

using Strings = std::vector<std::string>;

inline Strings documents_of(const Corpus& corpus) {
  Documents documents(corpus);
  Strings result;
  for (Piece piece; documents.next(piece);) {
    if (piece.first) result.emplace_back();
    result.back() += piece.text;
  }
  return result;
}

inline Strings documents_of(const std::string& path, const ReaderOptions& options = {}) {
  return documents_of(Corpus({path}, options));
}

// Returns an encoder whose tokens are the bytes; 256 ends a document.
inline Encoder byte_encoder() {
  const auto encode = [](std::string_view text, std::vector<uint32_t>& tokens) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  };
  return {encode, "bytes", 257, 256};
}

inline std::vector<int64_t> tokens_of(const std::filesystem::path& folder, std::string_view split) {
  const Shards shards(folder, split, "");
  std::vector<int64_t> tokens(static_cast<size_t>(shards.tokens()));
  shards.read(0, tokens);
  return tokens;
}

// Returns the documents that the tokens of the byte encoder stand for.
inline Strings decoded(const std::vector<int64_t>& tokens) {
  Strings documents;
  bool begins = true;
  for (const int64_t token : tokens) {
    if (begins) documents.emplace_back();
    begins = token == 256;
    if (!begins) documents.back() += static_cast<char>(token);
  }
  return documents;
}

}  // namespace prism::data
