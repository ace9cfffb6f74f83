#include "prism/train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerName = "tokenizer.json";
constexpr const char* kRecipeName = "tokenizer.recipe";  // what the tokenizer beside it was trained on

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
      throw Error(fmt::format("{}: expected \"{}\" alone", config.where("data.path"), kTorchSources));
    path = torch_folder().string();
    if (options.extensions.empty()) options.extensions = {".py"};
  }
  return data::Corpus(std::move(paths), std::move(options));
}

// Returns the paths of data.path where they are folders of token shards; none where they are text.
std::vector<fs::path> shard_folders(const io::Config& config) {
  std::vector<fs::path> folders;
  const auto paths = paths_of(config);
  for (const auto& path : paths) {
    if (data::has_shards(path)) folders.emplace_back(path);
  }
  if (!folders.empty() && folders.size() < paths.size()) {
    throw Error(fmt::format("{}: expected folders of token shards or text, got both; build shards of the text too",
                            config.where("data.path")));
  }
  return folders;
}

// Where the user, the model to start from, or the shards name a tokenizer.
std::optional<fs::path> given_tokenizer(const io::Config& config) {
  if (!config.is("data.tokenizer", "auto")) return config.string("data.tokenizer");
  if (const auto init = config.string("model.init"); !init.empty()) return init;
  if (const auto folders = shard_folders(config); !folders.empty()) {
    for (const auto& folder : folders) {
      if (fs::exists(folder / kTokenizerName)) return folder / kTokenizerName;
    }
    throw Error(fmt::format("{}: these shards have no tokenizer.json beside them; name theirs with data.tokenizer",
                            config.where("data.path")));
  }
  return std::nullopt;
}

text::Tokenizer read_tokenizer(const io::Config& config, const fs::path& path) {
  return text::Tokenizer::load(path).with_end_of_text(config.string("data.eos"));
}

text::Tokenizer load_tokenizer(const io::Config& config, const fs::path& path) {
  auto tokenizer = read_tokenizer(config, path);
  if (config.is_given("data.vocab") && config.integer("data.vocab") != tokenizer.size()) {
    throw Error(fmt::format("{}: the tokenizer {} has {} tokens, got {}; leave the key out", config.where("data.vocab"),
                            path.string(), tokenizer.size(), config.integer("data.vocab")));
  }
  return tokenizer;
}

std::string tokenizer_recipe(const io::Config& config, const data::Corpus& corpus, const data::Sources& sources) {
  // The name stands for "a tokenizer yet to be trained": only its vocabulary and its special token count.
  const auto eos = config.string("data.eos");
  const data::Encoder untrained{
      {}, eos == text::kEndOfText ? "untrained" : "untrained, " + eos, config.integer("data.vocab"), 0};
  return data::recipe(corpus, {sources.train, {}}, untrained, {});
}

text::Tokenizer train_tokenizer(const io::Config& config, const data::Corpus& corpus, const DatasetProgress& progress) {
  data::Documents documents(corpus);
  text::TrainerOptions options;
  options.vocabulary = config.integer("data.vocab");
  options.special_tokens = {config.string("data.eos")};
  options.progress = progress.tokenizer;
  data::Piece piece;
  return text::train_bpe(
             [&](std::string& text) {
               if (!documents.next(piece)) return false;
               text = std::move(piece.text);
               return true;
             },
             options)
      .tokenizer.with_end_of_text(config.string("data.eos"));
}

text::Tokenizer tokenizer_of(const io::Config& config, const data::Corpus& corpus, const data::Sources& sources,
                             const fs::path& folder, const DatasetProgress& progress) {
  if (const auto given = given_tokenizer(config)) return load_tokenizer(config, *given);
  const auto recipe = tokenizer_recipe(config, corpus, sources);
  const auto file = folder / kTokenizerName, recipe_file = folder / kRecipeName;
  if (fs::exists(file) && fs::exists(recipe_file) && io::read_file(recipe_file) == recipe)
    return read_tokenizer(config, file);
  auto tokenizer = train_tokenizer(config, corpus, progress);
  fs::create_directories(folder);
  fs::remove(recipe_file);
  tokenizer.save(file);
  io::write_file_atomically(recipe_file, recipe);
  return tokenizer;
}

// The tokenizer of a run that is resumed. One that is named must still have its tokens.
text::Tokenizer tokenizer_of(const io::Config& config, const TrainedData& trained) {
  auto tokenizer = read_tokenizer(config, trained.tokenizer);
  if (const auto given = given_tokenizer(config); given && fs::exists(*given)) {
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
  std::optional<std::string> recipe = {};  // none: a split is missing or damaged
  std::string damage = {};
};

// Reads all tokens of the shards in a folder.
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

bool is_text_gone(const io::Config& config) {
  auto paths = paths_of(config);
  for (auto& path : config.strings("data.held_out_path")) paths.push_back(std::move(path));
  return std::ranges::any_of(paths, [](const auto& path) { return path != kTorchSources && !fs::exists(path); });
}

// Opens one split of several folders as one; those that have none of it are passed over.
std::optional<data::Shards> joined(const std::vector<fs::path>& folders, const char* split, const std::string& hash) {
  std::optional<data::Shards> shards;
  for (const auto& folder : folders) {
    if (!data::has_shards(folder, split)) continue;
    data::Shards next(folder, split, hash);
    next.verify();
    shards ? shards->append(std::move(next)) : (void)shards.emplace(std::move(next));
  }
  return shards;
}

// Returns the stretches of weighted paths, of which `tokens` gives the lengths; none where all weights are 1.
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
    throw Error(
        fmt::format("{}: expected held-out shards (val.json) too; build them with prism data build --held-out 0.01",
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

// The shards that were made of the text of data.path.
Dataset from_built_shards(const io::Config& config, text::Tokenizer tokenizer, const fs::path& folder) {
  const auto hash = tokenizer.hash();
  data::Shards train(folder, "train", hash), val(folder, "val", hash);
  std::vector<int64_t> tokens;
  for (const auto& source : train.identity().sources) tokens.push_back(source.tokens);
  return {std::move(tokenizer), std::move(train), std::move(val), stretches_of(config, tokens)};
}

}  // namespace

fs::path torch_folder() {
  const auto torch = torch_libraries().parent_path();  // they lie in torch/lib
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
        fmt::format("{}: expected a tokenizer with the special token {}, which ends every document; it has none. Name "
                    "its own with data.eos (prism data build --eos)",
                    where, tokenizer.end_of_text_name()));
  return {[tokenizer](std::string_view text, std::vector<uint32_t>& tokens) {
            tokenizer.encode(text, tokens, text::SpecialTokens::kText);
          },
          tokenizer.hash(), tokenizer.size(), *end};
}

Dataset open_dataset(const io::Config& config, const fs::path& folder, const DatasetProgress& progress,
                     const std::optional<TrainedData>& trained) {
  if (const auto folders = shard_folders(config); !folders.empty()) {
    if (!config.strings("data.held_out_path").empty()) {
      throw Error(
          fmt::format("{}: token shards bring their held-out text along; build them with prism data build "
                      "--held-out-path",
                      config.where("data.held_out_path")));
    }
    return from_shards(config, load_tokenizer(config, *given_tokenizer(config)), folders);
  }
  const auto kept = kept_shards(folder);
  const bool gone = trained && is_text_gone(config);
  if (gone && !kept.damage.empty()) throw Error(kept.damage + "; the text they were made of is gone");
  if (gone && kept.recipe == trained->recipe) {
    if (progress.note) progress.note(fmt::format("the text is gone; using its shards in {}", folder.string()));
    return from_built_shards(config, read_tokenizer(config, trained->tokenizer), folder);
  }
  if (progress.note && !kept.damage.empty()) progress.note(kept.damage + "; building the shards again");
  const auto corpus = corpus_of(config);
  const auto options = build_options(config);
  const auto sources = data::hash_sources(corpus, options);
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
  if (kept.recipe != recipe) built = data::build(corpus, encoder, folder, options, progress.shards);
  auto dataset = from_built_shards(config, std::move(tokenizer), folder);
  dataset.built = std::move(built);
  return dataset;
}

}  // namespace prism::train
