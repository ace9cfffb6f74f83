#pragma once

#include <cstdint>
#include <string>

#include "prism/io/numbers.h"

namespace prism::cli {

// Numbers as people read them.
using io::grouped;                                  // 1,234,567
std::string in_bytes(double bytes);                 // 512 B, 1.5 kB, 23.4 MB: powers of 1000
std::string in_time(double seconds);                // 0.4 s, 12 s, 3 min 05 s, 2 h 07 min, 3 d 4 h
std::string in_percent(double part, double whole);  // " 42 %"; three places wide, at most 100

}  // namespace prism::cli
