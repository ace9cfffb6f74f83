#pragma once

#include <stdexcept>

namespace prism {

// A mistake of the user: a wrong path, a broken file, an impossible setting. The command line exits with status 2.
// Failures at run time, such as a full disk, are plain std::runtime_error, and it exits with status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace io {
using prism::Error;
}

}  // namespace prism
