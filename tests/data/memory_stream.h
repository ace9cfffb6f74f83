#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "prism/data/bytes.h"

namespace prism::data {

class MemoryStream : public ByteStream {
 public:
  MemoryStream(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  size_t read(std::span<char> out) override {
    const size_t count = std::min(out.size(), bytes_.size() - consumed_);
    std::copy_n(bytes_.data() + consumed_, count, out.data());
    consumed_ += count;
    return count;
  }
  uint64_t consumed() const override { return consumed_; }
  const std::string& name() const override { return name_; }

 private:
  std::string_view bytes_;
  std::string name_;
  size_t consumed_ = 0;
};

// `bytes` must outlive the stream.
inline std::unique_ptr<ByteStream> from_memory(std::string_view bytes, std::string name) {
  return std::make_unique<MemoryStream>(bytes, std::move(name));
}

}  // namespace prism::data
