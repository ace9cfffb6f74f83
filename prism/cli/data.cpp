#include "prism/cli/data_commands.h"

namespace prism::cli {

Command data_command() {
  return {"data", "Turn text into token shards, look at them",
          "prism data build corpus/ --tokenizer tokenizer.json --out data/", [](CLI::App& app) {
            return attach_commands(app, {data_build_command(), data_info_command()});
          }};
}

}  // namespace prism::cli
