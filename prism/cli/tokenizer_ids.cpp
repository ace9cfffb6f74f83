#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <optional>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/data/bytes.h"
#include "prism/data/format_reader.h"
#include "prism/data/shards.h"
#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"
#include "prism/text/utf8.h"

namespace prism::cli {
namespace {

// The format in which `encode` writes token ids and `decode` reads them (`decode` accepts Json as Text). Binary is that
// of token shards: little-endian, 2 bytes per id if the vocabulary has at most 65,536 tokens, else 4.
enum class IdFormat { Text, Json, Binary };

struct EncodeOptions {
  std::string tokenizer, input = "-", out = "-";
  IdFormat format = IdFormat::Text;
  text::SpecialTokens specials = text::SpecialTokens::Parse;
};

// Writes ids in the chosen format, piece by piece.
class IdWriter {
 public:
  IdWriter(Output& output, IdFormat format, int64_t vocab_size)
      : output_(output), format_(format), token_bytes_(static_cast<size_t>(data::token_bytes_for(vocab_size))) {}

  void write(const std::vector<text::TokenId>& ids) {
    buffer_.clear();
    for (const text::TokenId id : ids) {
      if (format_ == IdFormat::Binary) {
        std::array<char, sizeof(id)> bytes;
        std::memcpy(bytes.data(), &id, sizeof(id));  // assumes a little-endian machine
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
    if (format_ == IdFormat::Text) output_.write("\n");
    if (format_ == IdFormat::Json) output_.write(any_ ? "]\n" : "[]\n");
    output_.finish();
  }

 private:
  const char* opening() const { return format_ == IdFormat::Json ? "[" : ""; }
  const char* separator() const { return format_ == IdFormat::Json ? "," : " "; }

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
    fmt::print("{}: {} tokens from {} of text, {:.2f} bytes per token\n", options.out, grouped(tokens), in_bytes(bytes),
               bytes / static_cast<double>(std::max<int64_t>(tokens, 1)));
  }
  return 0;
}

void add_options(CLI::App& app, EncodeOptions& options) {
  add_path(app, "tokenizer", options.tokenizer, "tokenizer.json, or a folder that contains one")->required();
  add_path(app, "input", options.input, "Text file, also .gz or .zst; -: standard input")->capture_default_str();
  add_path(app, "--out", options.out, "File to write; -: standard output")->capture_default_str();
  add_choice<IdFormat>(
      app, "--format", options.format,
      {{"text", IdFormat::Text}, {"json", IdFormat::Json}, {"binary", IdFormat::Binary}},
      "Ids separated by blanks, a JSON list, or the format\nof token shards: little-endian, 2 bytes an id if the\n"
      "vocabulary has at most 65,536 tokens, else 4");
  add_choice<text::SpecialTokens>(
      app, "--specials", options.specials, {{"parse", text::SpecialTokens::Parse}, {"text", text::SpecialTokens::Text}},
      "Special tokens in the text, such as <|endoftext|>,\nbecome that token (parse) or stay plain text (text)");
}

struct DecodeOptions {
  std::string tokenizer, input = "-", out = "-";
  IdFormat format = IdFormat::Text;
  bool skip_special = false;
};

// Parses ids from a stream that arrives in pieces of any length.
class IdReader {
 public:
  IdReader(std::string name, IdFormat format, int64_t vocab_size)
      : name_(std::move(name)), binary_(format == IdFormat::Binary), vocab_size_(vocab_size) {}

  void read(std::string_view piece, std::vector<text::TokenId>& ids) {
    for (const char byte : piece) binary_ ? take_byte(byte, ids) : take_character(byte, ids);
  }

  void finish(std::vector<text::TokenId>& ids) {
    if (binary_ && held_bytes_ > 0)
      throw Error(fmt::format("{}: expected whole token ids, got part of one at the end", name_));
    if (!binary_) end_number(ids);
    if (count_ == 0) throw Error(fmt::format("{}: expected token ids, got none", name_));
  }

 private:
  void take_byte(char byte, std::vector<text::TokenId>& ids) {
    held_ = held_.value_or(0) | int64_t{static_cast<unsigned char>(byte)} << (8 * held_bytes_);
    if (++held_bytes_ < data::token_bytes_for(vocab_size_)) return;
    held_bytes_ = 0;
    end_number(ids);
  }

  // Parses ids separated by blanks, or a JSON list: brackets and commas count as blanks.
  void take_character(char character, std::vector<text::TokenId>& ids) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    if (character == '\n') ++line_;
    if (character >= '0' && character <= '9') {
      held_ = std::min<int64_t>(held_.value_or(0) * 10 + (character - '0'), int64_t{1} << 40);
    } else if (kBetween.find(character) != std::string_view::npos) {
      end_number(ids);
    } else {
      throw Error(fmt::format("{}:{}: expected token ids such as 1 2 3 or [1, 2, 3], got {}", name_, line_,
                              io::quote({&character, 1})));
    }
  }

  void end_number(std::vector<text::TokenId>& ids) {
    if (!held_) return;
    if (*held_ >= vocab_size_) {
      throw Error(
          fmt::format("{}: expected ids below {}, the size of the vocabulary, got {}", name_, vocab_size_, *held_));
    }
    ids.push_back(static_cast<text::TokenId>(*held_));
    held_.reset();
    ++count_;
  }

  std::string name_;
  bool binary_;
  int64_t vocab_size_;
  std::optional<int64_t> held_;  // the part of an id read so far
  int64_t held_bytes_ = 0;
  int64_t count_ = 0;
  int64_t line_ = 1;
};

int decode(const DecodeOptions& options) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  const bool is_standard = options.input == "-";
  const auto input = data::open_decoded(is_standard ? "/dev/stdin" : options.input);
  IdReader reader(is_standard ? "standard input" : options.input, options.format, tokenizer.size());
  Output output(options.out);
  const Interrupt interrupt;

  std::string piece(kPieceBytes, '\0'), bytes;
  text::Utf8Stream stream;
  std::vector<text::TokenId> ids;
  for (bool more = true; more;) {
    interrupt.check();
    const size_t got = input->read(piece);
    more = got == piece.size();
    ids.clear();
    bytes.clear();
    reader.read(std::string_view(piece).substr(0, got), ids);
    if (!more) reader.finish(ids);
    for (const text::TokenId id : ids) {
      if (!options.skip_special || !tokenizer.is_special(id)) bytes += tokenizer.bytes(id);
    }
    output.write(stream.take(bytes));
  }
  output.write(stream.finish());
  output.finish();
  return 0;
}

void add_options(CLI::App& app, DecodeOptions& options) {
  add_path(app, "tokenizer", options.tokenizer, "tokenizer.json, or a folder that contains one")->required();
  add_path(app, "input", options.input, "File of token ids; -: standard input")->capture_default_str();
  add_path(app, "--out", options.out, "File for the text; -: standard output")->capture_default_str();
  add_choice<IdFormat>(app, "--format", options.format, {{"text", IdFormat::Text}, {"binary", IdFormat::Binary}},
                       "text: ids such as 1 2 3, or a JSON list;\nbinary: as written by prism tokenizer encode");
  app.add_flag("--skip-special", options.skip_special, "Leave special tokens out of the text");
}

}  // namespace

Command tokenizer_encode_command() {
  return make_command("encode", "Turn text into token ids",
                      "prism tokenizer encode tokenizer.json notes.txt --format json --out notes.json\n"
                      "echo \"import torch\" | prism tokenizer encode tokenizer.json",
                      add_options, encode);
}

Command tokenizer_decode_command() {
  return make_command("decode", "Turn token ids into text",
                      "echo \"[40, 716, 257]\" | prism tokenizer decode tokenizer.json", add_options, decode);
}

}  // namespace prism::cli
