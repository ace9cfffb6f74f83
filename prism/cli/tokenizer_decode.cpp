#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "prism/cli/interrupt.h"
#include "prism/cli/options.h"
#include "prism/cli/output.h"
#include "prism/cli/tokenizer_commands.h"
#include "prism/data/bytes.h"
#include "prism/data/shards.h"
#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"
#include "prism/text/utf8.h"

namespace prism::cli {

namespace {

struct DecodeOptions {
  std::string tokenizer, input = "-", out = "-";
  IdFormat format = IdFormat::kText;
  bool skip_special = false;
};

// Finds the ids in a stream that comes in pieces of any length.
class IdReader {
 public:
  IdReader(std::string name, IdFormat format, int64_t vocab_size)
      : name_(std::move(name)), binary_(format == IdFormat::kBinary), vocab_size_(vocab_size) {}

  void read(std::string_view piece, std::vector<text::TokenId>& ids) {
    for (const char byte : piece) binary_ ? take_byte(byte, ids) : take_character(byte, ids);
  }

  void finish(std::vector<text::TokenId>& ids) {
    if (binary_ && held_bytes_ > 0)
      throw Error(fmt::format("{}: expected whole token ids, got a part at the end", name_));
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

  // Ids with blanks between them, or a JSON list: brackets and commas are taken as blanks.
  void take_character(char character, std::vector<text::TokenId>& ids) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    if (character == '\n') ++line_;
    if (character >= '0' && character <= '9') {
      held_ = std::min<int64_t>(held_.value_or(0) * 10 + (character - '0'), int64_t{1} << 40);
    } else if (kBetween.find(character) != std::string_view::npos) {
      end_number(ids);
    } else {
      throw Error(fmt::format("{}:{}: expected token ids, as 1 2 3 or [1, 2, 3], got {}", name_, line_,
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
  std::optional<int64_t> held_;  // the id that is being read
  int64_t held_bytes_ = 0;
  int64_t count_ = 0;
  int64_t line_ = 1;
};

// How many bytes at the end of `text` may be the beginning of a character.
size_t open_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xC0) return back;
    if (byte < 0x80) break;
  }
  return 0;
}

int decode(const DecodeOptions& options) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  const bool is_standard = options.input == "-";
  const auto input = data::open_decoded(is_standard ? "/dev/stdin" : options.input);
  IdReader reader(is_standard ? "standard input" : options.input, options.format, tokenizer.size());
  Output output(options.out);
  const Interrupt interrupt;

  std::string piece(kPieceBytes, '\0'), text, repaired;
  std::vector<text::TokenId> ids;
  for (bool more = true; more;) {
    interrupt.check();
    const size_t got = input->read(piece);
    more = got == piece.size();
    ids.clear();
    reader.read(std::string_view(piece).substr(0, got), ids);
    if (!more) reader.finish(ids);
    for (const text::TokenId id : ids) {
      if (!options.skip_special || !tokenizer.is_special(id)) text += tokenizer.bytes(id);
    }
    const size_t kept = more ? open_bytes(text) : 0;
    output.write(text::repair_utf8(std::string_view(text).substr(0, text.size() - kept), repaired));
    text.erase(0, text.size() - kept);
  }
  output.finish();
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<DecodeOptions>();
  add_path(app, "tokenizer", options->tokenizer, "tokenizer.json, or a folder that has one")->required();
  add_path(app, "input", options->input, "Token ids; - is standard input")->capture_default_str();
  add_path(app, "--out", options->out, "Where to write the text; - is standard output")->capture_default_str();
  add_choice<IdFormat>(app, "--format", options->format, {{"text", IdFormat::kText}, {"binary", IdFormat::kBinary}},
                       "text: as 1 2 3 or as a JSON list;\nbinary: as `prism tokenizer encode` writes it");
  app.add_flag("--skip-special", options->skip_special, "Leave special tokens out of the text");
  return [options] { return decode(*options); };
}

}  // namespace

Command tokenizer_decode_command() {
  return {"decode", "Turn token ids into text", "echo \"[40, 716, 257]\" | prism tokenizer decode tokenizer.json",
          attach};
}

}  // namespace prism::cli
