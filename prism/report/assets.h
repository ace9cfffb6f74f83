#pragma once

#include <span>

#include "prism/io/embedded_file.h"

namespace prism::report {

// The files of prism/report/assets, in the order in which CMakeLists.txt lists them.
std::span<const io::EmbeddedFile> assets();

}  // namespace prism::report
