#include <fmt/format.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <vector>

#include "prism/data/bytes.h"
#include "prism/io/error.h"

namespace prism::data {

namespace {

constexpr int kWindowLog = 27;

struct FreeDecoder {
  void operator()(ZSTD_DCtx* decoder) const { ZSTD_freeDCtx(decoder); }
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(std::unique_ptr<ByteStream> compressed)
      : compressed_(std::move(compressed)), decoder_(ZSTD_createDCtx()), buffer_(ZSTD_DStreamInSize()) {
    if (!decoder_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(decoder_.get(), ZSTD_d_windowLogMax, kWindowLog);
  }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos < output.size) {
      if (input_.pos == input_.size) refill();
      const size_t before = output.pos;
      const size_t status = ZSTD_decompressStream(decoder_.get(), &output, &input_);
      if (ZSTD_isError(status)) refuse(status);
      if (status == 0) in_frame_ = false;
      if (status != 0 && input_.size > 0) in_frame_ = true;
      // With no input left, a call only flushes what the decoder still holds.
      if (input_.size > 0 || output.pos > before) continue;
      if (in_frame_) {
        throw Error(
            fmt::format("{}: zstd data ends too early after {} bytes; the file is truncated", name(), consumed()));
      }
      break;
    }
    return output.pos;
  }
  uint64_t consumed() const override { return compressed_->consumed(); }
  const std::string& name() const override { return compressed_->name(); }

 private:
  void refill() { input_ = {buffer_.data(), compressed_->read(buffer_), 0}; }

  [[noreturn]] void refuse(size_t status) const {
    if (ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge) {
      throw Error(
          fmt::format("{}: expected a zstd window of at most 128 MiB (--long={}), got a larger one; "
                      "compress the file again without --ultra --long",
                      name(), kWindowLog));
    }
    throw Error(fmt::format("{}: expected zstd data, got '{}' near byte {}", name(), ZSTD_getErrorName(status),
                            consumed() - (input_.size - input_.pos)));
  }

  std::unique_ptr<ByteStream> compressed_;
  std::unique_ptr<ZSTD_DCtx, FreeDecoder> decoder_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> decode_zstd(std::unique_ptr<ByteStream> compressed) {
  return std::make_unique<ZstdStream>(std::move(compressed));
}

}  // namespace prism::data
