#include "prism/report/protobuf.h"

#include <bit>

namespace prism::report {

namespace {
enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
}

void append_little_endian(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
}

void ProtobufMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) encoded_.push_back(static_cast<char>(value | 0x80));
  encoded_.push_back(static_cast<char>(value));
}

void ProtobufMessage::key(int number, int wire_type) { varint(static_cast<uint64_t>(number) << 3 | wire_type); }

ProtobufMessage& ProtobufMessage::integer(int number, int64_t value) {
  key(number, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::float32(int number, float value) {
  key(number, kFixed32);
  append_little_endian(encoded_, std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtobufMessage& ProtobufMessage::float64(int number, double value) {
  key(number, kFixed64);
  append_little_endian(encoded_, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

ProtobufMessage& ProtobufMessage::bytes(int number, std::string_view value) {
  key(number, kLengthDelimited);
  varint(value.size());
  encoded_ += value;
  return *this;
}

}  // namespace prism::report
