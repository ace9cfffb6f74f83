#pragma once

#include <cstdint>
#include <string_view>

namespace prism::report {

// Returns the CRC-32C checksum: Castagnoli's polynomial 0x1EDC6F41, bits reversed (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

}  // namespace prism::report
