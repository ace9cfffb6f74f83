#include "prism/cli/command.h"

namespace prism::cli {

std::vector<Command> commands() {
  return {
      tokenizer_command(),
  };
}

}  // namespace prism::cli
