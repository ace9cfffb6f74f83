#include "prism/io/numbers.h"

namespace prism::io {

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = digits.front() == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace prism::io
