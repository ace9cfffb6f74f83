#include "prism/cli/corpus_options.h"

#include <fmt/format.h>

#include <utility>

#include "prism/cli/numbers.h"

namespace prism::cli {

void CorpusOptions::add_to(CLI::App& app) {
  app.add_option("text", paths, "Files and folders: text, .jsonl or .parquet,\neach also .gz or .zst (but .parquet)")
      ->required()
      ->type_name("PATH");
  app.add_option("--extension", reader.extensions, "Of folders take only such files (.py);\nmay be repeated")
      ->type_name("EXT")
      ->allow_extra_args(false);
  app.add_option("--separator", reader.separator, "Line between two documents of a text file;\n\"\" for none")
      ->type_name("LINE")
      ->capture_default_str();
  app.add_option("--text-field", reader.text_field, "Field or column of .jsonl and .parquet files")
      ->type_name("NAME")
      ->capture_default_str();
}

std::string skipped_files(const data::Skipped& skipped) {
  std::string text;
  for (const auto& [count, what] :
       {std::pair{skipped.hidden, "hidden"}, std::pair{skipped.filtered, "of other extensions"},
        std::pair{skipped.binary, "binary"}, std::pair{skipped.empty, "empty"},
        std::pair{skipped.special, "neither files nor folders"}}) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "skipped files: " : ", ", grouped(count), what);
  }
  return text;
}

}  // namespace prism::cli
