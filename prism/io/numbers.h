#pragma once

#include <cstdint>
#include <string>

namespace prism::io {

std::string grouped(int64_t number);                           // 1,234,567
std::string counted(int64_t number, const std::string& noun);  // "1 file", "1,234 files"

}  // namespace prism::io
