#pragma once

#include "prism/cli/command.h"

namespace prism::cli {

// The commands of `prism data`.
Command data_build_command();
Command data_info_command();

}  // namespace prism::cli
