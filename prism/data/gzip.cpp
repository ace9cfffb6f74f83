#include <fmt/format.h>
#include <zlib.h>

#include <stdexcept>
#include <vector>

#include "prism/data/bytes.h"
#include "prism/io/error.h"

namespace prism::data {

namespace {

constexpr size_t kInputBytes = 1 << 18;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib's code for "a gzip header, the largest window"

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(std::unique_ptr<ByteStream> compressed)
      : compressed_(std::move(compressed)), input_(kInputBytes) {
    if (inflateInit2(&state_, kGzipOnly) != Z_OK) throw std::runtime_error("zlib: cannot start decoding");
  }
  ~GzipStream() override { inflateEnd(&state_); }

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(out.size());
    while (state_.avail_out > 0) {
      if (state_.avail_in == 0 && !refill()) break;
      if (!in_member_ && !begin_member()) continue;
      inflate_some();
    }
    return out.size() - state_.avail_out;
  }
  uint64_t consumed() const override { return compressed_->consumed(); }
  const std::string& name() const override { return compressed_->name(); }

 private:
  bool refill() {
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    state_.avail_in = static_cast<uInt>(compressed_->read(input_));
    if (state_.avail_in == 0 && in_member_) {
      throw Error(
          fmt::format("{}: gzip data ends too early after {} bytes; the file is truncated", name(), consumed()));
    }
    return state_.avail_in > 0;
  }

  // Padding with zero bytes may follow a member.
  bool begin_member() {
    while (members_ > 0 && state_.avail_in > 0 && *state_.next_in == 0) {
      ++state_.next_in;
      --state_.avail_in;
    }
    if (state_.avail_in == 0) return false;
    inflateReset(&state_);
    in_member_ = true;
    return true;
  }

  void inflate_some() {
    const int status = inflate(&state_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      in_member_ = false;
      ++members_;
    } else if (status != Z_OK) {
      const char* reason = state_.msg ? state_.msg : "unexpected data";
      throw Error(
          fmt::format("{}: expected gzip data, got '{}' near byte {}", name(), reason, consumed() - state_.avail_in));
    }
  }

  std::unique_ptr<ByteStream> compressed_;
  std::vector<char> input_;
  z_stream state_{};
  bool in_member_ = false;
  int64_t members_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> decode_gzip(std::unique_ptr<ByteStream> compressed) {
  return std::make_unique<GzipStream>(std::move(compressed));
}

}  // namespace prism::data
