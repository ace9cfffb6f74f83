#include "prism/cli/command.h"

namespace prism::cli {

std::vector<Command> commands() {
  return {
      train_command(), compare_command(),  reproduce_command(), inspect_command(),
      eval_command(),  generate_command(), export_command(),    tokenizer_command(),
      data_command(),  bench_command(),    doctor_command(),    completions_command(),
  };
}

}  // namespace prism::cli
