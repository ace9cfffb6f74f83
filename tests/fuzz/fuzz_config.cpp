// Any text as a configuration, or after "--set " as an assignment: refused with prism::Error, or it prints itself as
// TOML that reads back to the same.
#include <cstdlib>

#include "prism/io/config.h"
#include "prism/io/error.h"

namespace {

using prism::io::Config;
using prism::io::ConfigKey;

const Config& defaults() {
  static const Config config(prism::io::ConfigTable(
      {
          ConfigKey::string("data.path", nullptr, "Any string."),
          ConfigKey::integer("train.steps", 10, "A bounded integer.").at_least(1),
          ConfigKey::boolean("train.fast", true, "A switch."),
          ConfigKey::real("optimizer.lr", 0.02, "A real or a word.").above(0).or_word("auto"),
          ConfigKey::string("optimizer.side", "auto", "A choice.").one_of({"auto", "left"}),
          ConfigKey::reals("optimizer.betas", {0.9, 0.95}, "A pair.").length(2).at_least(0).below(1),
          ConfigKey::real_lists("optimizer.coefficients", "jordan", "Lists of lists.").or_word("jordan"),
          ConfigKey::strings("compare.names", {"a"}, "Strings."),
          ConfigKey::integers("compare.seeds", {0}, "Integers."),
      },
      "compare.override"));
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSet = "--set ";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Config config = defaults();
  try {
    if (text.starts_with(kSet)) {
      config.set(text.substr(kSet.size()));
    } else {
      config.read_toml(text, "input");
    }
  } catch (const prism::Error&) {
    return 0;
  }
  const auto printed = config.to_toml();
  Config again = defaults();
  again.read_toml(printed, "printed");
  if (again.to_toml() != printed) std::abort();
  return 0;
}
