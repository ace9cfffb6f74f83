#include "prism/train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/folder_lock.h"
#include "prism/io/hash.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleBytes = 4'000'000;  // of text, to estimate its tokens from; learning a tokenizer takes 0.1 s
constexpr const char* kTokenizerName = "tokenizer.json";
constexpr const char* kRecipeName = "tokenizer.recipe";  // identifies the text that tokenizer.json was trained on

data::ReaderOptions reader_options(const io::Config& config) {
  data::ReaderOptions options;
  options.separator = config.string("data.separator");
  options.text_field = config.string("data.text_field");
  options.extensions = config.strings("data.extensions");
  return options;
}

std::vector<std::string> paths_of(const io::Config& config) {
  std::vector<std::string> paths;
  for (auto& source : data_sources(config)) paths.push_back(std::move(source.path));
  return paths;
}

data::Corpus corpus_of(const io::Config& config) {
  auto options = reader_options(config);
  auto paths = paths_of(config);
  for (auto& path : paths) {
    if (path != kTorchSources) continue;
    if (paths.size() > 1)
      throw Error(fmt::format("{}: expected \"{}\" alone, got {} paths", config.where("data.path"), kTorchSources,
                              paths.size()));
    path = torch_folder().string();
    if (options.extensions.empty()) options.extensions = {".py"};
  }
  return data::Corpus(std::move(paths), std::move(options));
}

// Returns the paths of data.path if they are folders of token shards, nothing if they are text.
std::vector<fs::path> shard_folders(const io::Config& config) {
  std::vector<fs::path> folders;
  const auto paths = paths_of(config);
  for (const auto& path : paths) {
    if (data::has_shards(path)) folders.emplace_back(path);
  }
  if (!folders.empty() && folders.size() < paths.size()) {
    throw Error(fmt::format("{}: expected folders of token shards or text, got both; build shards from the text too",
                            config.where("data.path")));
  }
  return folders;
}

// A tokenizer, and the key that gives it.
struct GivenTokenizer {
  fs::path path;
  const char* key;
};

// Returns the tokenizer that data.tokenizer names or that comes with model.init or the shards; nothing if one must be
// trained.
std::optional<GivenTokenizer> given_tokenizer(const io::Config& config) {
  if (!config.is("data.tokenizer", "auto")) return {{config.string("data.tokenizer"), "data.tokenizer"}};
  if (const auto init = config.string("model.init"); !init.empty()) return {{init, "model.init"}};
  if (const auto folders = shard_folders(config); !folders.empty()) {
    for (const auto& folder : folders) {
      if (fs::exists(folder / kTokenizerName)) return {{folder / kTokenizerName, "data.path"}};
    }
    throw Error(fmt::format("{}: expected tokenizer.json beside the shards, got none; name it with data.tokenizer",
                            config.where("data.path")));
  }
  return std::nullopt;
}

text::Tokenizer read_tokenizer(const io::Config& config, const fs::path& path) {
  return text::Tokenizer::load(path).with_end_of_text(config.string("data.eos"));
}

text::Tokenizer read_given(const io::Config& config, const GivenTokenizer& given) {
  try {
    return read_tokenizer(config, given.path);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", config.where(given.key), error.what()));
  }
}

text::Tokenizer load_tokenizer(const io::Config& config, const GivenTokenizer& given) {
  auto tokenizer = read_given(config, given);
  if (config.is_given("data.vocab") && config.integer("data.vocab") != tokenizer.size()) {
    throw Error(fmt::format("{}: expected {}, the size of tokenizer {}, got {}; leave the key out",
                            config.where("data.vocab"), tokenizer.size(), given.path.string(),
                            config.integer("data.vocab")));
  }
  return tokenizer;
}

std::string tokenizer_recipe(const io::Config& config, const data::Corpus& corpus, const data::Sources& sources) {
  // "untrained" takes the place of the tokenizer's hash. A tokenizer that is still to be trained depends on its
  // vocabulary size and special token only.
  const auto eos = config.string("data.eos");
  const data::Encoder untrained{
      {}, eos == text::kEndOfText ? "untrained" : "untrained, " + eos, config.integer("data.vocab"), 0};
  return data::recipe(corpus, {sources.train, {}}, untrained, {});
}

text::Tokenizer train_tokenizer(const io::Config& config, const text::TextSource& source,
                                text::TrainerOptions options = {}) {
  options.vocabulary = config.integer("data.vocab");
  options.special_tokens = {config.string("data.eos")};
  return text::train_bpe(source, options).tokenizer.with_end_of_text(config.string("data.eos"));
}

// Returns the given tokenizer or the one in the folder, if it was trained on the same text; nothing if one must be
// trained.
std::optional<text::Tokenizer> existing_tokenizer(const io::Config& config, const data::Corpus& corpus,
                                                  const data::Sources& sources, const fs::path& folder) {
  if (const auto given = given_tokenizer(config)) return load_tokenizer(config, *given);
  const auto file = folder / kTokenizerName, recipe_file = folder / kRecipeName;
  if (!fs::exists(file) || !fs::exists(recipe_file)) return std::nullopt;
  if (io::read_file(recipe_file) != tokenizer_recipe(config, corpus, sources)) return std::nullopt;
  return read_tokenizer(config, file);
}

text::Tokenizer tokenizer_of(const io::Config& config, const data::Corpus& corpus, const data::Sources& sources,
                             const fs::path& folder, const DatasetProgress& progress) {
  if (auto existing = existing_tokenizer(config, corpus, sources, folder)) return std::move(*existing);
  data::Documents documents(corpus);
  const auto source = [&, piece = data::Piece()](std::string& text) mutable {
    if (!documents.next(piece)) return false;
    text = std::move(piece.text);
    return true;
  };
  auto tokenizer = train_tokenizer(config, source, {.progress = progress.tokenizer});
  io::make_folders(folder);
  fs::remove(folder / kRecipeName);
  tokenizer.save(folder / kTokenizerName);
  io::write_file_atomically(folder / kRecipeName, tokenizer_recipe(config, corpus, sources));
  return tokenizer;
}

// Returns the tokenizer of a resumed run or, if the configuration names one with other tokens, that one: open_dataset
// then refuses the changed recipe.
text::Tokenizer tokenizer_of(const io::Config& config, const TrainedData& trained) {
  auto tokenizer = read_tokenizer(config, trained.tokenizer);
  if (const auto given = given_tokenizer(config); given && fs::exists(given->path)) {
    if (const auto named = load_tokenizer(config, *given); named.hash() != tokenizer.hash()) return named;
  }
  return tokenizer;
}

data::BuildOptions build_options(const io::Config& config) {
  data::BuildOptions options;
  if (const auto paths = config.strings("data.held_out_path"); !paths.empty()) {
    options.held_out_text.emplace(paths, reader_options(config));
  } else {
    options.held_out.fraction = held_out_fraction(config);
  }
  options.workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return options;
}

struct KeptShards {
  std::optional<std::string> recipe = {};  // none if a split is missing or damaged
  std::string damage = {};                 // the error, if a split is damaged
};

// Verifies the shards in a folder by reading all tokens.
KeptShards kept_shards(const fs::path& folder) {
  if (!data::has_shards(folder, "train") || !data::has_shards(folder, "val")) return {};
  try {
    const data::Shards train(folder, "train", ""), val(folder, "val", "");
    train.verify();
    val.verify();
    return {train.identity().recipe};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

bool is_text_missing(const io::Config& config) {
  auto paths = paths_of(config);
  for (auto& path : config.strings("data.held_out_path")) paths.push_back(std::move(path));
  return std::ranges::any_of(paths, [](const auto& path) { return path != kTorchSources && !fs::exists(path); });
}

// Opens one split of several folders as one. Skips folders without it.
std::optional<data::Shards> joined(const std::vector<fs::path>& folders, const char* split, const std::string& hash) {
  std::optional<data::Shards> shards;
  for (const auto& folder : folders) {
    if (!data::has_shards(folder, split)) continue;
    data::Shards next(folder, split, hash);
    next.verify();
    if (shards)
      shards->append(std::move(next));
    else
      shards.emplace(std::move(next));
  }
  return shards;
}

// Returns one stretch per path; `tokens` holds their lengths. Returns none if all weights are 1.
std::vector<data::SamplerOptions::Stretch> stretches_of(const io::Config& config, const std::vector<int64_t>& tokens) {
  std::vector<data::SamplerOptions::Stretch> stretches;
  const auto sources = data_sources(config);
  if (std::ranges::all_of(sources, [](const auto& source) { return source.weight == 1; })) return stretches;
  for (size_t i = 0; i < sources.size(); ++i) stretches.push_back({tokens.at(i), sources[i].weight});
  return stretches;
}

Dataset from_shards(const io::Config& config, text::Tokenizer tokenizer, const std::vector<fs::path>& folders) {
  const auto hash = tokenizer.hash();
  auto train = joined(folders, "train", hash), val = joined(folders, "val", hash);
  if (!val) {
    throw Error(fmt::format(
        "{}: expected held-out shards (val.json), got none; build them with prism data build --held-out 0.01",
        config.where("data.path")));
  }
  if (const auto end = train->identity().end_of_text; end != tokenizer.end_of_text()) {
    throw Error(fmt::format("{}: documents in these shards end with \"{}\", got \"{}\"; set data.eos",
                            config.where("data.eos"), tokenizer.bytes(end), tokenizer.end_of_text_name()));
  }
  std::vector<int64_t> tokens;
  for (const auto& folder : folders) tokens.push_back(data::read_identity(folder, "train").tokens);
  return {std::move(tokenizer), std::move(*train), std::move(*val), stretches_of(config, tokens)};
}

// Opens the shards that were built from the text of data.path.
Dataset from_built_shards(const io::Config& config, text::Tokenizer tokenizer, const fs::path& folder) {
  const auto hash = tokenizer.hash();
  data::Shards train(folder, "train", hash), val(folder, "val", hash);
  std::vector<int64_t> tokens;
  for (const auto& source : train.identity().sources) tokens.push_back(source.tokens);
  return {std::move(tokenizer), std::move(train), std::move(val), stretches_of(config, tokens)};
}

// Returns the tokenizer of the shards in the folder, whose recipe is `kept`, if they were made from these sources with
// these settings.
std::optional<text::Tokenizer> prepared_tokenizer(const io::Config& config, const data::Corpus& corpus,
                                                  const data::Sources& sources, const data::BuildOptions& options,
                                                  const fs::path& folder, const std::optional<std::string>& kept) {
  if (!kept) return std::nullopt;
  auto tokenizer = existing_tokenizer(config, corpus, sources, folder);
  if (!tokenizer) return std::nullopt;
  const auto encoder = encoder_for(*tokenizer, config.where("data.tokenizer"));
  return *kept == data::recipe(corpus, sources, encoder, options) ? tokenizer : std::nullopt;
}

// Returns the recipe recorded with the shards in a folder, without reading their tokens.
std::optional<std::string> stated_recipe(const fs::path& folder) try {
  if (!data::has_shards(folder, "train") || !data::has_shards(folder, "val")) return std::nullopt;
  return data::read_identity(folder, "train").recipe;
} catch (const Error&) {
  return std::nullopt;  // damaged shards will be built again
}

// The number of tokens in an epoch; each path counts `weight` times.
int64_t weighted_tokens(const Dataset& dataset) {
  if (dataset.stretches.empty()) return dataset.train.tokens();
  double tokens = 0;
  for (const auto& stretch : dataset.stretches) tokens += static_cast<double>(stretch.tokens) * stretch.weight;
  return std::llround(tokens);
}

// The beginning of a text: all of it if it is short.
struct Sample {
  std::vector<data::Piece> pieces = {};
  bool whole = false;
  double scale = 1;  // size of the text, as a multiple of the sample's
};

Sample sample_of(const std::vector<std::string>& paths, data::ReaderOptions options, size_t bytes) {
  // Readers read ahead by up to two pieces, which makes the sample seem larger; document_hash needs this size.
  options.piece_bytes = size_t{128} << 10;
  const data::Corpus corpus(paths, options);
  data::Documents documents(corpus);
  Sample sample;
  size_t read = 0;
  for (data::Piece piece; read < bytes && !sample.whole;) {
    if (documents.next(piece)) {
      read += piece.text.size();
      sample.pieces.push_back(std::move(piece));
    } else {
      sample.whole = true;
    }
  }
  if (!sample.whole)
    sample.scale = std::max(1.0, static_cast<double>(corpus.bytes()) / static_cast<double>(documents.consumed()));
  return sample;
}

// Trains a tokenizer on the samples. If they are `whole`, it is the one that open_dataset trains.
text::Tokenizer sampled_tokenizer(const io::Config& config, const std::vector<Sample>& samples, bool whole) {
  const auto source = [&, i = size_t{0}, j = size_t{0}](std::string& text) mutable {
    while (i < samples.size() && j == samples[i].pieces.size()) ++i, j = 0;
    if (i == samples.size()) return false;
    text = samples[i].pieces[j++].text;
    return true;
  };
  text::TrainerOptions options;
  options.allow_fewer = !whole;
  return train_tokenizer(config, source, options);
}

// Returns the largest hash of a held-out document; nothing if the samples do not determine it.
std::optional<uint64_t> held_out_bound(const std::vector<Sample>& samples, const data::HeldOut& held_out) {
  data::HeldOutChooser chooser(held_out);
  int64_t documents = 0;
  for (const auto& sample : samples) {
    if (!sample.whole) return std::nullopt;
    for (const auto& piece : sample.pieces) {
      if (piece.first) chooser.add(data::document_hash(piece.text));
      documents += piece.first ? 1 : 0;
    }
  }
  return documents == 1 ? std::nullopt : chooser.bound();  // a single document is cut
}

struct TokenCount {
  double train = 0, held_out = 0;
};

// Returns the number of tokens of a text, counted in its sample. Documents whose hash is at most `bound` are held out.
TokenCount count_tokens(const Sample& sample, const data::Encoder& encoder, std::optional<uint64_t> bound = {}) {
  TokenCount count;
  std::vector<uint32_t> ids;
  bool held_out = false;
  for (const auto& piece : sample.pieces) {
    if (piece.first) held_out = bound && data::document_hash(piece.text) <= *bound;
    ids.clear();
    encoder.encode(piece.text, ids);
    (held_out ? count.held_out : count.train) += sample.scale * static_cast<double>(ids.size() + (piece.last ? 1 : 0));
  }
  return count;
}

}  // namespace

DatasetSize size_of(const Dataset& dataset) {
  return {.vocab = dataset.tokenizer.size(),
          .train_tokens = dataset.train.tokens(),
          .val_tokens = dataset.val.tokens(),
          .epoch_tokens = weighted_tokens(dataset)};
}

fs::path data_folder(const io::Config& config) {
  return config.is("data.cache", "auto") ? fs::path(config.string("run.out")) / "data"
                                         : fs::path(config.string("data.cache"));
}

DatasetSize estimate_dataset(const io::Config& config, const fs::path& folder) {
  if (!shard_folders(config).empty()) return size_of(open_dataset(config, folder));
  const auto corpus = corpus_of(config);
  const auto options = build_options(config);
  if (const auto kept = stated_recipe(folder)) {
    const auto sources = data::hash_sources(corpus, options);
    if (const auto used = prepared_tokenizer(config, corpus, sources, options, folder, kept))
      return size_of(from_built_shards(config, *used, folder));
  }
  const auto sources = data_sources(config);
  std::vector<Sample> samples;
  for (const auto& root : corpus.roots())
    samples.push_back(sample_of({root.path}, corpus.options(), kSampleBytes / sources.size()));
  const bool whole = std::ranges::all_of(samples, &Sample::whole);
  const auto given = given_tokenizer(config);
  const auto tokenizer = given ? load_tokenizer(config, *given) : sampled_tokenizer(config, samples, whole);
  const auto encoder = encoder_for(tokenizer, config.where("data.tokenizer"));
  DatasetSize size{.vocab = given ? tokenizer.size() : config.integer("data.vocab")};
  const auto bound = options.held_out_text ? std::nullopt : held_out_bound(samples, options.held_out);
  const double fraction = bound || options.held_out_text ? 0 : options.held_out.fraction;
  double train = 0, held_out = 0, epoch = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto count = count_tokens(samples[i], encoder, bound);
    train += count.train * (1 - fraction);
    held_out += count.train * fraction + count.held_out;
    epoch += count.train * (1 - fraction) * sources[i].weight;
  }
  size.counted = whole && fraction == 0;
  if (options.held_out_text) {
    const auto sample = sample_of(config.strings("data.held_out_path"), options.held_out_text->options(), kSampleBytes);
    held_out = count_tokens(sample, encoder).train;
    size.counted = size.counted && sample.whole;
  }
  size.train_tokens = std::llround(train);
  size.epoch_tokens = std::llround(epoch);
  size.val_tokens = std::llround(held_out);
  size.bytes_to_write = (size.train_tokens + size.val_tokens) * data::token_bytes_for(size.vocab);
  return size;
}

fs::path torch_folder() {
  const auto torch = torch_libraries().parent_path();  // the libraries are in torch/lib
  if (torch.empty() || !fs::exists(torch / "__init__.py")) {
    throw Error(fmt::format(
        "data.path: \"{}\" needs a torch that was installed as a Python package; name files or folders of text instead",
        kTorchSources));
  }
  return torch;
}

data::Encoder encoder_for(const text::Tokenizer& tokenizer, const std::string& where) {
  const auto end = tokenizer.end_of_text();
  if (!end)
    throw Error(
        fmt::format("{}: expected a tokenizer with the special token {}, which ends every document, got one without; "
                    "name the token that it has with data.eos (prism data build --eos)",
                    where, tokenizer.end_of_text_name()));
  return {[tokenizer](std::string_view text, std::vector<uint32_t>& tokens) {
            tokenizer.encode(text, tokens, text::SpecialTokens::Text);
          },
          tokenizer.hash(), tokenizer.size(), *end};
}

Dataset open_prepared(const io::Config& config, const text::Tokenizer& tokenizer, const fs::path& folder) {
  if (const auto folders = shard_folders(config); !folders.empty()) return from_shards(config, tokenizer, folders);
  return from_built_shards(config, tokenizer, folder);
}

Dataset open_dataset(const io::Config& config, const fs::path& folder, const DatasetProgress& progress,
                     const std::optional<TrainedData>& trained) {
  if (const auto folders = shard_folders(config); !folders.empty()) {
    if (!config.strings("data.held_out_path").empty()) {
      throw Error(
          fmt::format("{}: token shards contain their held-out text; leave the key out, or build the shards with prism "
                      "data build --held-out-path",
                      config.where("data.held_out_path")));
    }
    return from_shards(config, load_tokenizer(config, *given_tokenizer(config)), folders);
  }
  auto kept = kept_shards(folder);
  const bool text_missing = trained && is_text_missing(config);
  if (text_missing && !kept.damage.empty()) throw Error(kept.damage + "; the text it was built from is missing");
  if (text_missing && kept.recipe == trained->recipe) {
    if (progress.note) progress.note(fmt::format("the text is missing; using its shards in {}", folder.string()));
    return from_built_shards(config, read_tokenizer(config, trained->tokenizer), folder);
  }
  if (progress.note && !kept.damage.empty()) progress.note(kept.damage + "; building the shards again");
  const auto corpus = corpus_of(config);
  const auto options = build_options(config);
  const auto sources = data::hash_sources(corpus, options);
  std::optional<io::FolderTurn> turn;
  const auto take_turn = [&] {
    if (turn) return;
    turn.emplace(folder, [&] {
      if (progress.note)
        progress.note(fmt::format("waiting for another process to prepare data in {}", folder.string()));
    });
    if (turn->waited()) kept = kept_shards(folder);
  };
  if (!trained) {
    if (auto tokenizer = prepared_tokenizer(config, corpus, sources, options, folder, kept.recipe))
      return from_built_shards(config, std::move(*tokenizer), folder);
    take_turn();
  }
  auto tokenizer = trained ? tokenizer_of(config, *trained) : tokenizer_of(config, corpus, sources, folder, progress);
  const auto encoder = encoder_for(tokenizer, config.where("data.tokenizer"));
  const auto recipe = data::recipe(corpus, sources, encoder, options);
  if (trained && recipe != trained->recipe) {
    throw Error(
        fmt::format("{}: cannot resume: the training text or its tokenizer has changed since the run began (was {}, is "
                    "{}); restore it, or train in another folder (--out)",
                    config.where("data.path"), trained->recipe, recipe));
  }
  std::optional<data::BuildResult> built;
  if (kept.recipe != recipe) take_turn();
  if (kept.recipe != recipe) built = data::build(corpus, encoder, folder, options, progress.shards);
  auto dataset = from_built_shards(config, std::move(tokenizer), folder);
  dataset.built = std::move(built);
  return dataset;
}

}  // namespace prism::train
