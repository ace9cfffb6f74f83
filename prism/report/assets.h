#pragma once

#include <span>

#include "prism/io/embedded_file.h"

namespace prism::report {

// Returns the files of prism/report/assets, in the order of CMakeLists.txt.
std::span<const io::EmbeddedFile> assets();

}  // namespace prism::report
