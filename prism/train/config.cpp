#include "prism/train/config.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/spelling.h"
#include "prism/model/hugging_face.h"
#include "prism/optim/adam.h"
#include "prism/optim/registry.h"
#include "prism/text/tokenizer.h"
#include "prism/train/machine.h"

namespace prism::train {
namespace {

using io::Config;
using io::ConfigKey;

constexpr const char* kAuto = "auto";
constexpr double kMostRate = 1e30;     // far beyond use, and within float32, in which weights are written
constexpr int64_t kMostThreads = 256;  // OpenMP ends the program where it cannot start as many as it is told

ConfigKey option_key(const Option& option) {
  const auto name = "optimizer." + option.name;
  if (option.type == "number") return ConfigKey::real(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integer") return ConfigKey::integer(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "boolean") return ConfigKey::boolean(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integers") return ConfigKey::integers(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "pair") return ConfigKey::reals(name, kAuto, option.doc).length(2).or_word(kAuto);
  if (option.type == "coefficients") {
    auto key = ConfigKey::real_lists(name, kAuto, option.doc).or_word(kAuto);
    for (const char* word : {"jordan", "you", "polar_express", "minimax9", "converged"})
      key = std::move(key).or_word(word);
    return key;
  }
  auto words = io::split(option.type, '|');
  if (std::find(words.begin(), words.end(), kAuto) == words.end()) words.emplace_back(kAuto);
  return ConfigKey::string(name, kAuto, option.doc).one_of(words);
}

// Not keys: the trainer looks at the loss and the gradients itself, and descends; its weights are float32 matrices and
// vectors, so there is nothing to fold, to split or to keep a master of.
bool is_key(const Option& option) {
  static const std::set<std::string> without = {"lr",    "maximize", "skip_nonfinite", "capturable",
                                                "split", "fold",     "master_weights", "gamma_schedule"};
  return !without.contains(option.name);
}

void add_optimizer_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(
      ConfigKey::string("optimizer.name", "prism", "Optimizer of the hidden matrices.").one_of(optimizer_names()));
  keys.push_back(ConfigKey::real("optimizer.lr", kAuto, "Peak learning rate of the hidden matrices.")
                     .at_least(0)
                     .at_most(kMostRate)
                     .or_word(kAuto));
  std::set<std::string> seen;
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& option : options->table()) {
      if (is_key(option) && seen.insert(option.name).second) keys.push_back(option_key(option));
    }
  }
  keys.push_back(ConfigKey::string("optimizer.gamma_schedule", "constant", "Course of γ over the run.")
                     .one_of({"constant", "cosine", "linear", "wsd"}));
  keys.push_back(ConfigKey::integer("optimizer.gamma_warmup", 0, "Steps over which γ rises to its value.").at_least(0));
  keys.push_back(ConfigKey::real("optimizer.gamma_floor", 0.0, "Where γ's schedule ends, as a fraction of γ.")
                     .at_least(0)
                     .at_most(1));
  keys.push_back(ConfigKey::real("optimizer.aux_lr", kAuto,
                                 "Peak learning rate of AdamW on the rest: embeddings, head, norms, biases; auto: "
                                 "0.005, or optimizer.aux_ratio times optimizer.lr.")
                     .at_least(0)
                     .at_most(kMostRate)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::real("optimizer.aux_ratio", kAuto,
                                 "Peak learning rate of the rest as a multiple of optimizer.lr, in place of "
                                 "optimizer.aux_lr; auto: none.")
                     .at_least(0)
                     .at_most(kMostRate)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::reals("optimizer.aux_betas", kMixedBetas, "AdamW's averages, on the rest.")
                     .length(2)
                     .at_least(0)
                     .below(1));
  keys.push_back(
      ConfigKey::real("optimizer.aux_weight_decay", 0.01, "Decoupled weight decay of the rest.").at_least(0));
}

void add_model_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(ConfigKey::string("model.preset", kAuto, "Sizes to start from; auto: 22m, or those of model.init.")
                     .one_of(model::preset_names())
                     .or_word(kAuto));
  const auto size = [&](const char* name, const char* doc) {
    keys.push_back(ConfigKey::integer(name, kAuto, doc).at_least(1).or_word(kAuto));
  };
  size("model.layers", "Decoder blocks; auto: the preset's, here and below.");
  size("model.width", "Size of the residual stream.");
  size("model.heads", "Attention heads.");
  size("model.kv_heads", "Key-value heads; divides model.heads.");
  keys.push_back(ConfigKey::integer("model.head_dim", kAuto, "Size of one head; auto: width / heads.")
                     .at_least(2)
                     .must("an even number", [](const nlohmann::json& value) { return value.get<int64_t>() % 2 == 0; })
                     .or_word(kAuto));
  size("model.mlp", "Inner size of the SwiGLU block.");
  keys.push_back(ConfigKey::boolean("model.tied", true, "The head shares the embedding's weights."));
  keys.push_back(ConfigKey::real("model.rope_theta", kAuto, "Base of the rotary angles.").above(0).or_word(kAuto));
  keys.push_back(ConfigKey::boolean("model.recompute", false,
                                    "Recompute activations in the backward pass: less memory, more time."));
  keys.push_back(ConfigKey::string("model.init_scale", "qwen2",
                                   "Random weights: qwen2 draws every matrix from N(0, 0.02²); depth divides the "
                                   "attention and MLP output projections by √(2 · layers).")
                     .one_of({"qwen2", "depth"}));
  keys.push_back(
      ConfigKey::string("model.init", "", "Hugging Face folder to start from; empty: random weights from train.seed."));
}

void add_data_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(
      ConfigKey::weighted_paths(
          "data.path", nullptr,
          "Files and folders of text, folders of token shards, or \"torch-sources\": the Python files of the "
          "installed torch. An epoch goes weight times through a path; 1 where none is given.")
          .length(1, 1000));
  keys.push_back(ConfigKey::strings("data.extensions", nlohmann::json::array(),
                                    "Within folders, only files that end so; empty: all."));
  keys.push_back(
      ConfigKey::string("data.separator", "<|endoftext|>", "A line of text files that ends a document; empty: none."));
  keys.push_back(ConfigKey::string("data.text_field", "text", "Field of JSON lines, column of Parquet files."));
  keys.push_back(ConfigKey::string(
      "data.tokenizer", kAuto,
      "tokenizer.json or a folder with one; auto: that of model.init or of the shards, else one is trained."));
  keys.push_back(
      ConfigKey::string("data.eos", std::string(text::kEndOfText), "Token of the tokenizer that ends every document."));
  keys.push_back(ConfigKey::integer("data.vocab", 16384, "Tokens of a tokenizer that is trained here.").at_least(257));
  keys.push_back(ConfigKey::real("data.held_out", kAuto,
                                 "Fraction of the documents kept for evaluation; auto: 0.01, or none with "
                                 "data.held_out_path.")
                     .above(0)
                     .below(1)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::strings("data.held_out_path", nlohmann::json::array(),
                                    "Files and folders of text to evaluate on, in place of documents of data.path."));
  keys.push_back(
      ConfigKey::string("data.cache", kAuto, "Where tokenizer and shards are kept; auto: the folder data of the run."));
}

void add_train_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(ConfigKey::integer("train.steps", 1000, "Optimizer steps.").at_least(1));
  keys.push_back(
      ConfigKey::integer("train.batch", 32, "Sequences of one optimizer step, accumulation included.").at_least(1));
  keys.push_back(ConfigKey::integer("train.context", kAuto, "Tokens of a sequence; auto: the preset's.")
                     .at_least(1)
                     .or_word(kAuto));
  keys.push_back(
      ConfigKey::integer("train.accumulate", 1, "Passes one step is split into; divides train.batch.").at_least(1));
  keys.push_back(ConfigKey::real("train.clip", 1.0, "Largest norm of the gradient; 0: no clipping.").at_least(0));
  keys.push_back(ConfigKey::integer("train.seed", 1, "Decides initial weights and the order of the data.").at_least(0));
  keys.push_back(
      ConfigKey::integer("train.eval_every", 100, "Steps between evaluations on held-out text; 0: only at the end.")
          .at_least(0));
  keys.push_back(
      ConfigKey::integer("train.eval_sequences", 128, "Held-out sequences of an evaluation; 0: all.").at_least(0));
  keys.push_back(ConfigKey::integer("train.patience", 0,
                                    "Evaluations in a row without a better held-out loss after which training stops; "
                                    "0: never.")
                     .at_least(0));
  keys.push_back(
      ConfigKey::boolean("train.deterministic", false, "Bit-equal repetition on the GPU; the CPU always repeats."));
  keys.push_back(ConfigKey::boolean("train.graph", true,
                                    "On a GPU, replay steps from a CUDA graph where the optimizer allows it."));
  keys.push_back(
      ConfigKey::integer("train.max_skips", 10, "Non-finite steps in a row after which training stops.").at_least(1));
  keys.push_back(ConfigKey::string("schedule.kind", "cosine", "Course of both learning rates.")
                     .one_of({"constant", "cosine", "linear", "wsd"}));
  keys.push_back(ConfigKey::integer("schedule.warmup", kAuto,
                                    "Steps of linear warm-up; auto: 100, or a tenth of train.steps where that is less.")
                     .at_least(0)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::real("schedule.floor", kAuto,
                                 "Last rate, as a fraction of the peak; auto: 0.1, or none when constant.")
                     .at_least(0)
                     .at_most(1)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::integer("schedule.decay", kAuto, "Steps of wsd's decay; auto: a fifth of train.steps.")
                     .at_least(1)
                     .or_word(kAuto));
}

void add_run_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(
      ConfigKey::integer("checkpoint.every", 500, "Steps between checkpoints; 0: only at the end.").at_least(0));
  keys.push_back(ConfigKey::integer("checkpoint.keep", 3, "Checkpoints that are kept.").at_least(1));
  keys.push_back(ConfigKey::boolean("checkpoint.best", false,
                                    "Also keep the weights with the lowest held-out loss so far, in the folder best."));
  keys.push_back(
      ConfigKey::integer("metrics.spectra_every", 0, "Steps between records of spectra, SNR and gain; 0: none.")
          .at_least(0));
  keys.push_back(ConfigKey::boolean("metrics.norms", true,
                                    "Record the norms of gradient, momentum, innovation, update and weights of each "
                                    "type of hidden matrices at every step."));
  keys.push_back(ConfigKey::boolean("metrics.tensorboard", true, "Write TensorBoard event files."));
  keys.push_back(
      ConfigKey::boolean("metrics.csv", true, "Write metrics.csv, the scalars of metrics.jsonl as a table."));
  keys.push_back(
      ConfigKey::string("run.device", kAuto, "cpu, cuda or cuda:N; auto: the first GPU where there is one."));
  keys.push_back(
      ConfigKey::integer("run.threads", 0, "CPU threads; 0: torch's own choice.").at_least(0).at_most(kMostThreads));
  keys.push_back(
      ConfigKey::string("run.out", nullptr, "Folder of the run.").must("not empty", [](const nlohmann::json& value) {
        return value != "";
      }));
  keys.push_back(
      ConfigKey::strings("compare.optimizers", nlohmann::json::array(),
                         "What is compared: names of optimizers, or names that [compare.override.NAME] explains."));
  keys.push_back(ConfigKey::string(
      "compare.label", "",
      "Given in [compare.override.NAME]: what tables and the page call NAME; empty: made from the name."));
  keys.push_back(ConfigKey::reals("compare.lr", nlohmann::json::array(), "Learning rates each of them is run at.")
                     .above(0)
                     .at_most(kMostRate));
  keys.push_back(
      ConfigKey::integers("compare.seeds", {1}, "Seeds; the first chooses the rates, the others measure at them.")
          .at_least(0));
  keys.push_back(ConfigKey::integer("compare.jobs", 1,
                                    "Runs made side by side, each in a process of its own and, where there are several "
                                    "GPUs, on one of its own; the results are the same.")
                     .at_least(1)
                     .at_most(64));
  keys.push_back(
      ConfigKey::real("compare.tolerance", 0.02, "A rate is good when its held-out loss is this close to the best.")
          .above(0));
  keys.push_back(ConfigKey::string("compare.baseline", kAuto,
                                   "Whom the others are compared with; auto: the best whose optimizer is not prism."));
  keys.push_back(
      ConfigKey::string("compare.prompt", "", "Text that each best model continues in the end; empty: none."));
  keys.push_back(ConfigKey::integer("compare.sample_tokens", 48, "Tokens of such a continuation.").at_least(1));
}

template <typename Make>
auto as_user_error(const std::string& who, Make make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    throw Error(fmt::format("{}: {}", who, error.what_without_backtrace()));
  }
}

std::vector<std::pair<const char*, int64_t*>> sizes_of(model::ModelConfig& model) {
  return {{"model.layers", &model.layers},     {"model.width", &model.width},       {"model.heads", &model.heads},
          {"model.kv_heads", &model.kv_heads}, {"model.head_dim", &model.head_dim}, {"model.mlp", &model.mlp}};
}

// That of model.init, which no key may contradict.
model::ModelConfig imported_config(const Config& config, int64_t vocab) {
  const auto file = std::filesystem::path(config.string("model.init")) / "config.json";
  auto model = model::from_hugging_face_config(io::read_file(file), file.string());
  const auto refuse = [&](const char* key, const auto& theirs) {
    throw Error(fmt::format("{}: model.init has {}, got {}; leave the key out", config.where(key), theirs,
                            config.value(key).dump()));
  };
  for (const auto& [key, size] : sizes_of(model)) {
    if (!config.is(key, kAuto) && config.integer(key) != *size) refuse(key, *size);
  }
  if (!config.is("model.rope_theta", kAuto) && config.real("model.rope_theta") != model.rope_theta)
    refuse("model.rope_theta", model.rope_theta);
  if (config.is_given("model.tied") && config.boolean("model.tied") != model.tied) refuse("model.tied", model.tied);
  if (!config.is("model.preset", kAuto)) refuse("model.preset", "its own sizes");
  if (!config.is("model.init_scale", "qwen2")) refuse("model.init_scale", "its own weights");
  if (model.vocab < vocab) {
    throw Error(fmt::format("{}: the model has {} embeddings, the tokenizer {} tokens", config.where("model.init"),
                            model.vocab, vocab));
  }
  return model;
}

constexpr double kAuxRate = 0.005;

// The peak rate of the rest, for hidden matrices whose peak rate is `lr`.
double aux_rate(const Config& config, double lr) {
  if (config.is("optimizer.aux_ratio", kAuto))
    return config.is("optimizer.aux_lr", kAuto) ? kAuxRate : config.real("optimizer.aux_lr");
  if (!config.is("optimizer.aux_lr", kAuto)) {
    throw Error(
        fmt::format("{}: expected either optimizer.aux_ratio or optimizer.aux_lr, got both ({}); set one of them "
                    "to \"auto\"",
                    config.where("optimizer.aux_ratio"), config.where("optimizer.aux_lr")));
  }
  return config.real("optimizer.aux_ratio") * lr;
}

std::string preset_of(const Config& config) {
  return config.is("model.preset", kAuto) ? "22m" : config.string("model.preset");
}

// A course over train.steps with warm-up, for the keys `warmup`, which must leave room for it, and `decay` where wsd
// has one.
Schedule course(const Config& config, ScheduleKind kind, const char* warmup, const char* decay) {
  const auto steps = config.integer("train.steps");
  Schedule result{.kind = kind,
                  .warmup = config.is(warmup, kAuto) ? std::min<int64_t>(100, steps / 10) : config.integer(warmup)};
  if (kind == ScheduleKind::Constant) return result;
  result.total = steps;
  if (result.warmup >= result.total) {
    throw Error(fmt::format("{}: expected fewer than train.steps = {}, got {}; --set {}=0 turns it off",
                            config.where(warmup), result.total, result.warmup, warmup));
  }
  if (kind != ScheduleKind::WarmupStableDecay) return result;
  const auto room = result.total - result.warmup;
  const bool says = decay != nullptr && !config.is(decay, kAuto);
  result.decay = says ? config.integer(decay) : std::clamp<int64_t>(result.total / 5, 1, room);
  if (result.decay > room) {
    throw Error(fmt::format("{}: expected at most train.steps − {} = {}, got {}", config.where(decay), warmup, room,
                            result.decay));
  }
  return result;
}

ScheduleKind kind_of(const Config& config, const char* key) {
  return OptionType<ScheduleKind>::read(config.value(key));
}

Schedule gamma_schedule(const Config& config) {
  const auto kind = kind_of(config, "optimizer.gamma_schedule");
  auto result = course(config, kind, "optimizer.gamma_warmup", /*decay=*/nullptr);
  const double floor = config.real("optimizer.gamma_floor");
  if (kind != ScheduleKind::Constant) {
    result.floor = floor;
  } else if (floor != 0) {
    throw Error(fmt::format("{}: it needs an optimizer.gamma_schedule other than \"constant\"",
                            config.where("optimizer.gamma_floor")));
  }
  return result;
}

// The same folder however the path to it was written, so that a run can be resumed from anywhere.
std::string absolute(const std::string& path) {
  const auto full = std::filesystem::absolute(path).lexically_normal();
  return (full.has_filename() ? full : full.parent_path()).string();
}

void make_paths_absolute(Config& config) {
  auto sources = config.value("data.path");
  for (auto& source : sources) {
    auto& path = source.is_string() ? source : source.at("path");
    if (path != kTorchSources) path = absolute(path.get<std::string>());
  }
  config.assign("data.path", sources, config.where("data.path"));
  auto held_out = config.strings("data.held_out_path");
  for (auto& path : held_out) path = absolute(path);
  config.assign("data.held_out_path", held_out, config.where("data.held_out_path"));
  for (const char* key : {"data.tokenizer", "data.cache", "model.init"}) {
    if (const auto path = config.string(key); path != kAuto && !path.empty())
      config.assign(key, absolute(path), config.where(key));
  }
}

// Refuses a batch whose tokens alone would not fit into memory.
void check_batch(const Config& config) {
  const auto context =
      config.is("train.context", kAuto) ? model::preset(preset_of(config)).context : config.integer("train.context");
  const double tokens = static_cast<double>(config.integer("train.batch")) * static_cast<double>(context + 1);
  const double gigabytes = tokens * sizeof(int64_t) / 1e9, there = static_cast<double>(memory_bytes()) / 1e9;
  if (gigabytes < there) return;
  throw Error(
      fmt::format("{}: expected a batch whose tokens fit into this machine's memory, {:.0f} GB, got {} sequences "
                  "of {} tokens, {:.0f} GB",
                  config.where("train.batch"), there, config.integer("train.batch"), context, gigabytes));
}

void fill(Config& config, const char* key, const nlohmann::json& value) {
  if (config.is(key, kAuto)) config.assign(key, value, config.where(key));
}

}  // namespace

const io::ConfigTable& config_table() {
  static const io::ConfigTable table = [] {
    std::vector<ConfigKey> keys;
    add_model_keys(keys);
    add_data_keys(keys);
    add_train_keys(keys);
    add_optimizer_keys(keys);
    add_run_keys(keys);
    return io::ConfigTable(std::move(keys), "compare.override");
  }();
  return table;
}

io::Config make_config() { return io::Config(config_table()); }

model::ModelConfig model_config(const Config& config, int64_t vocab) {
  if (!config.string("model.init").empty()) return imported_config(config, vocab);
  auto model = model::preset(preset_of(config));
  const bool head_follows = model.head_dim == model.width / model.heads;
  for (const auto& [key, field] : sizes_of(model)) {
    if (!config.is(key, kAuto)) *field = config.integer(key);
  }
  if (head_follows && config.is("model.head_dim", kAuto)) model.head_dim = model.width / model.heads;
  if (!config.is("train.context", kAuto)) model.context = config.integer("train.context");
  if (!config.is("model.rope_theta", kAuto)) model.rope_theta = config.real("model.rope_theta");
  model.tied = config.boolean("model.tied");
  model.vocab = vocab;
  model.check();
  return model;
}

std::vector<DataSource> data_sources(const Config& config) {
  std::vector<DataSource> sources;
  for (const auto& entry : config.value("data.path")) {
    if (entry.is_string()) {
      sources.push_back({entry.get<std::string>()});
    } else {
      sources.push_back({entry.at("path").get<std::string>(), entry.at("weight").get<double>()});
    }
  }
  return sources;
}

double held_out_fraction(const Config& config) {
  return config.is("data.held_out", kAuto) ? 0.01 : config.real("data.held_out");
}

Schedule schedule(const Config& config) {
  const auto kind = kind_of(config, "schedule.kind");
  if (kind != ScheduleKind::WarmupStableDecay && !config.is("schedule.decay", kAuto)) {
    throw Error(fmt::format("{}: only schedule.kind = \"wsd\" has it, got \"{}\"", config.where("schedule.decay"),
                            config.string("schedule.kind")));
  }
  auto result = course(config, kind, "schedule.warmup", "schedule.decay");
  if (kind != ScheduleKind::Constant) {
    result.floor = config.is("schedule.floor", kAuto) ? 0.1 : config.real("schedule.floor");
  } else if (!config.is("schedule.floor", kAuto)) {
    throw Error(
        fmt::format("{}: schedule.kind = \"constant\" has none; leave the key out", config.where("schedule.floor")));
  }
  return result;
}

OptimizerPair optimizer_options(const Config& config) {
  const auto name = config.string("optimizer.name");
  const auto defaults = make_options(name);
  std::set<std::string> known;
  for (const auto& option : defaults->table()) known.insert(option.name);

  Json values = Json::object();
  const auto section = config.section("optimizer");
  for (const auto& [key, value] : section.items()) {
    if (key == "name" || key.starts_with("aux_") || key.starts_with("gamma_") || value == kAuto) continue;
    if (!known.contains(key)) {
      throw Error(fmt::format("{}: {} has no such option; its options are {}", config.where("optimizer." + key), name,
                              fmt::join(known, ", ")));
    }
    values[key] = value;
  }
  if (const auto gamma = gamma_schedule(config); !gamma.is_constant_one()) {
    const bool warms_up = gamma.kind == ScheduleKind::Constant;
    if (!known.contains("gamma_schedule")) {
      throw Error(fmt::format("{}: {} has no γ",
                              config.where(warms_up ? "optimizer.gamma_warmup" : "optimizer.gamma_schedule"), name));
    }
    values["gamma_schedule"] = OptionType<Schedule>::write(gamma);
  }
  const auto betas = config.reals("optimizer.aux_betas");
  OptimizerPair pair;
  pair.matrices = as_user_error("optimizer", [&] { return make_options(name, values); });
  pair.matrices->use_mixed_defaults();
  pair.rest = as_user_error("optimizer.aux", [&] {
    return make_options("adamw", {{"lr", aux_rate(config, pair.matrices->lr())},
                                  {"betas", betas},
                                  {"weight_decay", config.real("optimizer.aux_weight_decay")}});
  });
  return pair;
}

void resolve(Config& config, int64_t vocab) {
  config.reset("compare");
  make_paths_absolute(config);
  auto model = model_config(config, vocab);
  for (const auto& [key, size] : sizes_of(model)) fill(config, key, *size);
  fill(config, "model.rope_theta", model.rope_theta);
  // An imported model may know sequences far longer than anyone wants to train on.
  fill(config, "train.context", std::min(model.context, model::preset(preset_of(config)).context));
  if (config.integer("train.context") > model.context) {
    throw Error(fmt::format("{}: the model's longest sequence is {}, got {}", config.where("train.context"),
                            model.context, config.integer("train.context")));
  }
  config.assign("model.tied", model.tied, config.where("model.tied"));
  config.assign("data.vocab", vocab, config.where("data.vocab"));
  if (config.strings("data.held_out_path").empty()) fill(config, "data.held_out", held_out_fraction(config));
  if (config.string("model.init").empty()) fill(config, "model.preset", preset_of(config));
  const auto rates = schedule(config);
  fill(config, "schedule.warmup", rates.warmup);
  if (rates.kind != ScheduleKind::Constant) fill(config, "schedule.floor", rates.floor);
  if (rates.kind == ScheduleKind::WarmupStableDecay) fill(config, "schedule.decay", rates.decay);
  const auto pair = optimizer_options(config);
  const auto options = pair.matrices->to_json();
  for (const auto& [key, value] : options.items()) {
    const auto name = "optimizer." + key;
    if (config.table().find(name) != nullptr && key != "gamma_schedule" && !(value.is_array() && value.empty()))
      fill(config, name.c_str(), value);
  }
  // With a ratio it stays "auto": a file with both numbers would be refused.
  if (config.is("optimizer.aux_ratio", kAuto)) fill(config, "optimizer.aux_lr", pair.rest->lr());
}

void check(const Config& config) {
  const auto batch = config.integer("train.batch"), accumulate = config.integer("train.accumulate");
  if (batch % accumulate != 0) {
    throw Error(fmt::format("{}: expected a divisor of train.batch = {}, got {}", config.where("train.accumulate"),
                            batch, accumulate));
  }
  if (!config.strings("data.held_out_path").empty() && !config.is("data.held_out", kAuto)) {
    throw Error(fmt::format("{}: data.held_out_path names the held-out text; leave one of the two keys out",
                            config.where("data.held_out")));
  }
  schedule(config);
  optimizer_options(config);
  data_sources(config);
  device_of(config.string("run.device"));
  // A tokenizer that is given may have another vocabulary, but that decides no other number.
  if (config.string("model.init").empty()) model_config(config, config.integer("data.vocab"));
  check_batch(config);
}

}  // namespace prism::train
