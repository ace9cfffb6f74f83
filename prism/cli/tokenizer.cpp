#include "prism/cli/tokenizer_commands.h"

namespace prism::cli {

Command tokenizer_command() {
  return {"tokenizer", "Train a tokenizer, use it, look at it", "prism tokenizer train corpus/ --out tokenizer.json",
          [](CLI::App& app) {
            return attach_commands(app, {tokenizer_train_command(), tokenizer_encode_command(),
                                         tokenizer_decode_command(), tokenizer_info_command()});
          }};
}

}  // namespace prism::cli
