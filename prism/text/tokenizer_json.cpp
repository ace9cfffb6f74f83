// Reading and writing tokenizer.json, vocab.json and merges.txt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"
#include "prism/text/tokenizer_state.h"

namespace prism::text {

namespace {

using nlohmann::json;

// A value of the file together with its path, for messages such as "tokenizer.json: model.type: expected …".
class Node {
 public:
  Node(const json& value, std::string file, std::string path = "")
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}

  const json& value() const { return value_; }
  std::string place() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  [[noreturn]] void fail(std::string_view message) const { throw Error(fmt::format("{}: {}", place(), message)); }
  [[noreturn]] void expected(std::string_view what) const {
    constexpr size_t kShown = 60;
    const std::string got = value_.dump(-1, ' ', false, json::error_handler_t::replace);
    fail(fmt::format("expected {}, got {}", what, got.size() > kShown ? value_.type_name() : got));
  }

  bool has(const std::string& key) const { return object().contains(key) && !value_[key].is_null(); }
  Node at(const std::string& key) const {
    if (!object().contains(key)) fail(fmt::format("{} is missing", io::quote(key)));
    return {value_[key], file_, path_.empty() ? key : path_ + "." + key};
  }
  Node at(size_t i) const { return {value_[i], file_, fmt::format("{}[{}]", path_, i)}; }

  const json& object() const {
    if (!value_.is_object()) expected("an object");
    return value_;
  }
  const json& array() const {
    if (!value_.is_array()) expected("an array");
    return value_;
  }
  const std::string& text() const {
    if (!value_.is_string()) expected("a string");
    return value_.get_ref<const std::string&>();
  }
  bool flag() const {
    if (!value_.is_boolean()) expected("true or false");
    return value_.get<bool>();
  }
  TokenId token_id() const {
    if (!value_.is_number_unsigned() || value_.get<uint64_t>() > std::numeric_limits<TokenId>::max()) {
      expected("a token id");
    }
    return value_.get<TokenId>();
  }

 private:
  const json& value_;
  std::string file_, path_;
};

// Throws if a setting that Prism does not support has a value other than null or `neutral`.
void require_neutral(const Node& node, const std::string& key, const json& neutral) {
  if (node.has(key) && node.value()[key] != neutral) {
    node.at(key).expected(neutral.is_null() ? "null; Prism has no other" : neutral.dump() + "; Prism has no other");
  }
}

void require_type(const Node& node, std::string_view type) {
  if (node.at("type").text() != type) node.at("type").expected(io::quote(type) + "; Prism has no other");
}

std::vector<std::pair<std::string, TokenId>> read_vocabulary(const Node& node) {
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  vocabulary.reserve(node.object().size());
  for (const auto& [token, id] : node.value().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<TokenId>::max()) {
      node.fail(fmt::format("expected a token id for {}, got {}", io::quote(token), id.dump()));
    }
    vocabulary.emplace_back(token, id.get<TokenId>());
  }
  return vocabulary;
}

std::pair<std::string, std::string> read_merge_line(std::string_view line, const std::string& place) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    throw Error(fmt::format("{}: expected two tokens with a space between them, got {}", place, io::quote(line)));
  }
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

std::vector<std::pair<std::string, std::string>> read_merges(const Node& node) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(node.array().size());
  for (size_t i = 0; i < node.value().size(); ++i) {
    const json& merge = node.value()[i];
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      merges.push_back(read_merge_line(line, node.at(i).place()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
    } else {
      node.at(i).expected("\"left right\" or [\"left\", \"right\"]");
    }
  }
  return merges;
}

// Ignores unk_token and fuse_unk: they are for characters outside the vocabulary, and a byte-level one has none.
void read_model(const Node& model, TokenizerParts& parts) {
  if (model.has("type")) require_type(model, "BPE");
  require_neutral(model, "dropout", nullptr);
  require_neutral(model, "continuing_subword_prefix", "");
  require_neutral(model, "end_of_word_suffix", "");
  require_neutral(model, "byte_fallback", false);
  parts.vocabulary = read_vocabulary(model.at("vocab"));
  parts.merges = read_merges(model.at("merges"));
  parts.ignore_merges = model.has("ignore_merges") && model.at("ignore_merges").flag();
}

Normalizer read_normalizer(const Node& root) {
  if (!root.has("normalizer")) return Normalizer::None;
  require_type(root.at("normalizer"), "NFC");
  return Normalizer::Nfc;
}

PreSplit read_pattern(const Node& split) {
  require_type(split, "Split");
  const Node regex = split.at("pattern").at("Regex");
  if (split.at("behavior").text() != "Isolated") split.at("behavior").expected("\"Isolated\"; Prism has no other");
  require_neutral(split, "invert", false);
  for (const PreSplit rule : {PreSplit::Qwen2, PreSplit::Gpt2}) {
    if (regex.text() == pattern(rule)) return rule;
  }
  regex.expected("the pattern of Qwen2 or of GPT-2");
}

// Returns true if the ByteLevel step splits words itself, by GPT-2's pattern.
bool read_byte_level(const Node& node) {
  require_type(node, "ByteLevel");
  if (!node.has("add_prefix_space") || node.at("add_prefix_space").flag()) {
    node.fail("\"add_prefix_space\" must be false; Prism does not add a space");
  }
  return !node.has("use_regex") || node.at("use_regex").flag();
}

PreSplit read_pre_tokenizer(const Node& root) {
  const Node node = root.at("pre_tokenizer");
  if (node.object().contains("type") && node.at("type").text() == "ByteLevel") {
    if (!read_byte_level(node)) node.fail("\"use_regex\" must be true where no Split comes before");
    return PreSplit::Gpt2;
  }
  require_type(node, "Sequence");
  const Node steps = node.at("pretokenizers");
  if (steps.array().size() != 2) steps.fail("expected two steps, Split and ByteLevel");
  const PreSplit rule = read_pattern(steps.at(size_t{0}));
  if (read_byte_level(steps.at(1))) steps.at(1).fail("\"use_regex\" must be false after a Split");
  return rule;
}

std::vector<AddedToken> read_added_tokens(const Node& root) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  const Node list = root.at("added_tokens");
  for (size_t i = 0; i < list.array().size(); ++i) {
    const Node node = list.at(i);
    tokens.push_back({.content = node.at("content").text(),
                      .id = node.at("id").token_id(),
                      .single_word = node.at("single_word").flag(),
                      .lstrip = node.at("lstrip").flag(),
                      .rstrip = node.at("rstrip").flag(),
                      .normalized = node.at("normalized").flag(),
                      .special = node.at("special").flag()});
  }
  return tokens;
}

json added_token_json(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

json byte_level_json(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", use_regex}};
}

json pre_tokenizer_json(PreSplit rule) {
  if (rule == PreSplit::Gpt2) return byte_level_json(true);
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern(rule)}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", json::array({split, byte_level_json(false)})}};
}

// Writes one line for each token and merge. The library's own writer would sort the tokens by name.
std::string model_json(const Vocabulary& vocabulary) {
  std::string text = fmt::format(
      R"({{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, )"
      R"("end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": {}, "vocab": {{)",
      vocabulary.ignore_merges);
  const auto& tokens = vocabulary.tokens();
  std::string_view comma = "\n";
  for (TokenId id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].in_model) continue;
    text += fmt::format("{}{}: {}", comma, json(tokens[id].text).dump(), id);
    comma = ",\n";
  }
  text += "}, \"merges\": [";
  comma = "\n";
  for (const MergeRule& rule : vocabulary.merges()) {
    text += fmt::format("{}[{}, {}]", comma, json(tokens[rule.left].text).dump(), json(tokens[rule.right].text).dump());
    comma = ",\n";
  }
  return text + "]}";
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view where) {
  const json document = io::parse_json(text, where);
  const Node root(document, std::string(where));
  root.object();
  require_neutral(root, "truncation", nullptr);
  require_neutral(root, "padding", nullptr);
  if (root.has("post_processor")) require_type(root.at("post_processor"), "ByteLevel");
  require_type(root.at("decoder"), "ByteLevel");
  TokenizerParts parts;
  parts.normalizer = read_normalizer(root);
  parts.pre_split = read_pre_tokenizer(root);
  parts.added_tokens = read_added_tokens(root);
  read_model(root.at("model"), parts);
  return Tokenizer(std::move(parts), where);
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return from_json(io::read_file(path), path.string());
  if (std::filesystem::exists(path / "tokenizer.json")) return load(path / "tokenizer.json");
  if (std::filesystem::exists(path / "vocab.json")) return load_vocabulary(path / "vocab.json", path / "merges.txt");
  throw Error(
      fmt::format("{}: expected a tokenizer.json, or vocab.json and merges.txt, in this folder", path.string()));
}

Tokenizer Tokenizer::load_vocabulary(const std::filesystem::path& vocabulary, const std::filesystem::path& merges,
                                     const VocabularyOptions& options) {
  const json document = io::parse_json(io::read_file(vocabulary), vocabulary.string());
  TokenizerParts parts;
  parts.vocabulary = read_vocabulary(Node(document, vocabulary.string()));
  const std::string lines = io::read_file(merges);
  size_t number = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    std::string_view line(lines.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    begin = end + 1;
    if (line.starts_with("#version")) continue;
    parts.merges.push_back(read_merge_line(line, fmt::format("{}:{}", merges.string(), number)));
  }
  auto next = static_cast<TokenId>(parts.vocabulary.size());
  for (const std::string& token : options.special_tokens) {
    const auto known = document.find(token);
    parts.added_tokens.push_back({.content = token, .id = known != document.end() ? known->get<TokenId>() : next++});
  }
  parts.normalizer = options.normalizer;
  parts.pre_split = options.pre_split;
  return Tokenizer(std::move(parts), vocabulary.string());
}

std::string Tokenizer::to_json() const {
  const Vocabulary& vocabulary = state_->vocabulary;
  json added = json::array();
  for (const AddedToken& token : vocabulary.added_tokens()) added.push_back(added_token_json(token));
  const json normalizer = vocabulary.normalizer == Normalizer::Nfc ? json{{"type", "NFC"}} : json();
  return fmt::format(
      "{{\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n\"added_tokens\": {},\n\"normalizer\": {},\n"
      "\"pre_tokenizer\": {},\n\"post_processor\": {},\n\"decoder\": {},\n\"model\": {}}}\n",
      added.dump(), normalizer.dump(), pre_tokenizer_json(vocabulary.pre_split).dump(), byte_level_json(false).dump(),
      byte_level_json(true).dump(), model_json(vocabulary));
}

void Tokenizer::save(const std::filesystem::path& path) const { io::write_file_atomically(path, to_json()); }

}  // namespace prism::text
