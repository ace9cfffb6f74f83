#include "prism/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "prism/io/error.h"

namespace prism::cli {
namespace {

bool read_number(const std::string& text, double& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

bool read_number(const std::string& text, int64_t& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return true;
  constexpr double kExact = 1LL << 53;
  double real = 0;  // 8.0 and 1e3 are integers too
  if (!read_number(text, real) || real != std::trunc(real) || std::abs(real) > kExact) return false;
  number = static_cast<int64_t>(real);
  return true;
}

template <typename Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Number& value, const std::string& doc, Number least,
                        Number most, const std::string& expected) {
  const auto check = [=](std::string& text) {
    Number number{};
    if (!read_number(text, number) || !(number >= least && number <= most))  // NaN fails too
      return fmt::format("expected {}, got '{}'", expected, text);
    text = fmt::to_string(number);  // in the form that the parser reads
    return std::string();
  };
  return app.add_option(name, value, doc)->transform(CLI::Validator(check, ""))->capture_default_str();
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [=](std::string& word) {
    return std::ranges::find(words, word) != words.end()
               ? std::string()
               : fmt::format("expected {}, got '{}'", fmt::join(words, " or "), word);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Option* add_integer(CLI::App& app, const std::string& name, int64_t& value, const std::string& doc, int64_t least,
                         int64_t most) {
  const bool bounded = most != std::numeric_limits<int64_t>::max();
  const auto expected =
      bounded ? fmt::format("an integer from {} to {}", least, most) : fmt::format("an integer, {} or more", least);
  return add_number(app, name, value, doc, least, most, expected)->type_name("N");
}

CLI::Option* add_real(CLI::App& app, const std::string& name, double& value, const std::string& doc, double least,
                      double most) {
  return add_number(app, name, value, doc, least, most, fmt::format("a number from {} to {}", least, most))
      ->type_name("X");
}

CLI::Option* add_path(CLI::App& app, const std::string& name, std::string& value, const std::string& doc) {
  return app.add_option(name, value, doc)->type_name("PATH");
}

CLI::Option* add_device(CLI::App& app, std::string& value) {
  return app.add_option("--device", value, "cpu, cuda, cuda:N or auto (the first GPU, if any)")
      ->type_name("DEVICE")
      ->capture_default_str();
}

CLI::Option* add_name(CLI::App& app, const std::string& name, std::string& value, const std::vector<std::string>& known,
                      const std::string& doc) {
  return app.add_option(name, value, doc)->check(one_of(known))->type_name("NAME")->capture_default_str();
}

CLI::Option* add_names(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const std::vector<std::string>& known, const std::string& doc) {
  return add_names(app, name, values, one_of(known), doc);
}

CLI::Option* add_names(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const CLI::Validator& is_known, const std::string& doc) {
  return app.add_option(name, values, doc)->check(is_known)->type_name("NAME")->delimiter(',')->expected(1, -1);
}

CLI::Option* add_word(CLI::App& app, const std::string& name, const std::vector<std::string>& words,
                      const std::string& fallback, const std::string& doc,
                      const std::function<void(size_t index)>& take) {
  const auto index = [words](const std::string& word) {
    return static_cast<size_t>(std::ranges::find(words, word) - words.begin());
  };
  return app
      .add_option_function<std::string>(
          name, [=](const std::string& word) { take(index(word)); }, doc)
      ->check(one_of(words))
      ->type_name(fmt::format("{}", fmt::join(words, "|")))
      ->default_str(fallback);
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/=+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return word + "'";
}

void ConfigOptions::attach(CLI::App& app) {
  app.add_option("--config", file, "Configuration file (keys: docs/configuration.md)")->type_name("FILE.toml");
  app.add_option("--set", settings, "Set one key; may be repeated")
      ->type_name("section.key=value")
      ->expected(1)
      ->take_all();
  app.add_option("--out", out, "Folder for the results; same as --set run.out=FOLDER")->type_name("FOLDER");
}

void ConfigOptions::apply(io::Config& config) const {
  if (file) config.read_file(*file);
  for (const auto& setting : settings) config.set(setting);
  if (out) config.assign("run.out", *out, "--out");
  if (!config.has("run.out"))
    throw Error("--out: expected a folder for the results, got nothing; or set run.out in the configuration file");
}

void CorpusOptions::add_to(CLI::App& app) {
  app.add_option("text", paths, "Files and folders: text and .jsonl (also as .gz or\n.zst), and .parquet")
      ->required()
      ->type_name("PATH");
  app.add_option("--extension", reader.extensions,
                 "In folders, read only files with this extension\n(.py); may be repeated")
      ->type_name("EXT")
      ->allow_extra_args(false);
  app.add_option("--separator", reader.separator, "Line that separates the documents of a text file;\n\"\" for none")
      ->type_name("LINE")
      ->capture_default_str();
  app.add_option("--text-field", reader.text_field, "Field of .jsonl or column of .parquet with the text")
      ->type_name("NAME")
      ->capture_default_str();
}

}  // namespace prism::cli
