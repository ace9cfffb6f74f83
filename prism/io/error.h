#pragma once

#include <stdexcept>

namespace prism {

// The user's mistake: a wrong path, a broken file, an impossible setting. The command line ends with status 2.
// Failures while running (a full disk, say) are plain std::runtime_error and end with status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace io {
using prism::Error;
}

}  // namespace prism
