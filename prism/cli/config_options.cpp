#include "prism/cli/config_options.h"

#include "prism/io/error.h"

namespace prism::cli {

void ConfigOptions::attach(CLI::App& app) {
  app.add_option("--config", file, "Configuration (docs/configuration.md has all keys)")->type_name("FILE.toml");
  app.add_option("--set", settings, "Sets one key; may be given again and again")
      ->type_name("section.key=value")
      ->expected(1)
      ->take_all();
  app.add_option("--out", out, "Folder of the results; the same as --set run.out=FOLDER")->type_name("FOLDER");
}

void ConfigOptions::apply(io::Config& config) const {
  if (file) config.read_file(*file);
  for (const auto& setting : settings) config.set(setting);
  if (out) config.assign("run.out", *out, "--out");
  if (!config.has("run.out"))
    throw Error("--out: expected the folder of the results, got nothing; or give run.out in the configuration file");
}

}  // namespace prism::cli
