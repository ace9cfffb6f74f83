#pragma once

#include <cstdint>
#include <string>

namespace prism::io {

std::string grouped(int64_t number);  // 1,234,567

}  // namespace prism::io
