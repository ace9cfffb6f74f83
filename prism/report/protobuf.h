#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prism::report {

// Builds one message in protobuf's wire format: each field is a varint key (number·8 + wire type) and its value.
// Fields may come in any order; an omitted field has its default value.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int number, int64_t value);         // int64, int32 and enum fields
  ProtobufMessage& float32(int number, float value);           // float fields
  ProtobufMessage& float64(int number, double value);          // double fields
  ProtobufMessage& bytes(int number, std::string_view value);  // string, bytes and message fields
  ProtobufMessage& message(int number, const ProtobufMessage& value) { return bytes(number, value.encoded_); }

  const std::string& encoded() const { return encoded_; }

 private:
  void key(int number, int wire_type);
  void varint(uint64_t value);

  std::string encoded_;
};

// Appends the low `bytes` bytes of the value, least significant first.
void append_little_endian(std::string& text, uint64_t value, int bytes);

}  // namespace prism::report
