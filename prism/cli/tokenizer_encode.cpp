#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <memory>

#include "prism/cli/interrupt.h"
#include "prism/cli/numbers.h"
#include "prism/cli/options.h"
#include "prism/cli/output.h"
#include "prism/cli/progress.h"
#include "prism/cli/tokenizer_commands.h"
#include "prism/data/format_reader.h"
#include "prism/data/shards.h"
#include "prism/io/error.h"
#include "prism/text/tokenizer.h"

namespace prism::cli {

namespace {

struct EncodeOptions {
  std::string tokenizer, input = "-", out = "-";
  IdFormat format = IdFormat::kText;
  text::SpecialTokens specials = text::SpecialTokens::kParse;
};

// Ids in the chosen format, piece after piece.
class IdWriter {
 public:
  IdWriter(Output& output, IdFormat format, int64_t vocab_size)
      : output_(output), format_(format), token_bytes_(static_cast<size_t>(data::token_bytes_for(vocab_size))) {}

  void write(const std::vector<text::TokenId>& ids) {
    buffer_.clear();
    for (const text::TokenId id : ids) {
      if (format_ == IdFormat::kBinary) {
        std::array<char, sizeof(id)> bytes;
        std::memcpy(bytes.data(), &id, sizeof(id));  // little-endian, as the machines this runs on
        buffer_.append(bytes.data(), token_bytes_);
      } else {
        buffer_ += any_ ? separator() : opening();
        fmt::format_to(std::back_inserter(buffer_), "{}", id);
      }
      any_ = true;
    }
    output_.write(buffer_);
  }

  void finish() {
    if (format_ == IdFormat::kText) output_.write("\n");
    if (format_ == IdFormat::kJson) output_.write(any_ ? "]\n" : "[]\n");
    output_.finish();
  }

 private:
  const char* opening() const { return format_ == IdFormat::kJson ? "[" : ""; }
  const char* separator() const { return format_ == IdFormat::kJson ? "," : " "; }

  Output& output_;
  IdFormat format_;
  size_t token_bytes_;
  bool any_ = false;
  std::string buffer_;
};

void check_text(const data::Piece& first, const std::string& name) {
  constexpr size_t kProbeBytes = 8192;
  const size_t zero = std::string_view(first.text).substr(0, kProbeBytes).find('\0');
  if (zero == std::string::npos) return;
  throw Error(fmt::format("{}: expected text, got binary data (a zero byte at offset {})", name, zero));
}

int encode(const EncodeOptions& options) {
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  const std::string name = options.input == "-" ? "standard input" : options.input;
  const auto reader = data::read_text(data::open_decoded(options.input == "-" ? "/dev/stdin" : options.input),
                                      {.separator = "", .text_field = "text"});
  data::Piece piece;
  if (!reader->next(piece)) throw Error(fmt::format("{}: expected text, got nothing", name));
  check_text(piece, name);

  Output output(options.out);
  IdWriter writer(output, options.format, tokenizer.size());
  const Interrupt interrupt;
  const Pace pace;
  ProgressLine line;
  std::vector<text::TokenId> ids;
  int64_t tokens = 0;
  double bytes = 0;
  do {
    interrupt.check();
    ids.clear();
    tokenizer.encode(piece.text, ids, options.specials);
    writer.write(ids);
    tokens += static_cast<int64_t>(ids.size());
    bytes += static_cast<double>(piece.text.size());
    if (line.due()) {
      line.update(fmt::format("encoding  {}  {} tokens  {}/s", in_bytes(bytes), grouped(tokens),
                              in_bytes(pace.per_second(bytes))));
    }
  } while (reader->next(piece));
  line.clear();
  writer.finish();
  if (options.out != "-") {
    fmt::print("{}: {} tokens of {} of text, {:.2f} bytes a token\n", options.out, grouped(tokens), in_bytes(bytes),
               bytes / static_cast<double>(std::max<int64_t>(tokens, 1)));
  }
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<EncodeOptions>();
  add_path(app, "tokenizer", options->tokenizer, "tokenizer.json, or a folder that has one")->required();
  add_path(app, "input", options->input, "Text file, also .gz or .zst; - is standard input")->capture_default_str();
  add_path(app, "--out", options->out, "Where to write; - is standard output")->capture_default_str();
  add_choice<IdFormat>(
      app, "--format", options->format,
      {{"text", IdFormat::kText}, {"json", IdFormat::kJson}, {"binary", IdFormat::kBinary}},
      "Ids with blanks between, a JSON list, or as token\nshards hold them: little-endian, 2 bytes an id where\nthe "
      "vocabulary has at most 65,536 tokens, else 4");
  add_choice<text::SpecialTokens>(
      app, "--specials", options->specials,
      {{"parse", text::SpecialTokens::kParse}, {"text", text::SpecialTokens::kText}},
      "Whether special tokens in the text, as <|endoftext|>,\nbecome the token or are text like any other");
  return [options] { return encode(*options); };
}

}  // namespace

Command tokenizer_encode_command() {
  return {"encode", "Turn text into token ids",
          "prism tokenizer encode tokenizer.json notes.txt --format json --out notes.json\n"
          "echo \"import torch\" | prism tokenizer encode tokenizer.json",
          attach};
}

}  // namespace prism::cli
