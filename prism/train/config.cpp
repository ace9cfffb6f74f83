#include "prism/train/config.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/model/hugging_face.h"
#include "prism/optim/adam.h"
#include "prism/optim/registry.h"
#include "prism/train/machine.h"

namespace prism::train {
namespace {

using io::Config;

// Returns make(), with torch's errors turned into prism::Error.
template <typename Make>
auto with_user_errors(const std::string& who, Make make) {
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

// Throws prism::Error where ModelConfig::check would, with the key.
void check_sizes(const Config& config, model::ModelConfig model) {
  constexpr int64_t kMost = 1 << 20;
  auto sizes = sizes_of(model);
  sizes.insert(sizes.end(), {{"train.context", &model.context}, {"data.vocab", &model.vocab}});
  for (const auto& [key, size] : sizes) {
    if (*size > kMost) throw Error(fmt::format("{}: expected at most {}, got {}", config.where(key), kMost, *size));
  }
  if (model.heads % model.kv_heads != 0) {
    throw Error(fmt::format("{}: expected a divisor of model.heads = {}, got {}", config.where("model.kv_heads"),
                            model.heads, model.kv_heads));
  }
}

// Returns the configuration of model.init. Throws prism::Error if a key contradicts it.
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
    throw Error(fmt::format("{}: expected a model with at least {} embeddings, one per token, got {}",
                            config.where("model.init"), vocab, model.vocab));
  }
  return model;
}

// Returns the peak rate of the rest. An elementwise optimizer of the hidden matrices and the rest share a rate unless
// the rest has its own.
double aux_rate(const Config& config, const Options& matrices) {
  const double lr = matrices.lr();
  if (config.is("optimizer.aux_ratio", kAuto)) {
    if (!config.is("optimizer.aux_lr", kAuto)) return config.real("optimizer.aux_lr");
    return matrices.takes_matrices() ? kMixedRate : lr;
  }
  if (!config.is("optimizer.aux_lr", kAuto)) {
    throw Error(
        fmt::format("{}: expected either optimizer.aux_ratio or optimizer.aux_lr, got both ({}); set one of them "
                    "to \"auto\"",
                    config.where("optimizer.aux_ratio"), config.where("optimizer.aux_lr")));
  }
  return config.real("optimizer.aux_ratio") * lr;
}

// Throws prism::Error if a step's weight decay, lr·λ, is too large for float32, the type of the weights.
void check_decay(const Config& config, const char* key, const Options& options) {
  constexpr double kMost = 1e30;
  if (options.lr() * options.weight_decay() <= kMost) return;
  throw Error(
      fmt::format("{}: expected at most {:g}, so that its product with the learning rate {:g} stays below {:g}, "
                  "got {:g}",
                  config.where(key), kMost / options.lr(), options.lr(), kMost, options.weight_decay()));
}

std::string preset_of(const Config& config) {
  return config.is("model.preset", kAuto) ? "22m" : config.string("model.preset");
}

// Returns a schedule over train.steps. `warmup` and `decay` name the keys of its parts; without a key for it, wsd's
// decay is a fifth of the steps. Throws prism::Error if the parts are longer than train.steps.
Schedule make_schedule(const Config& config, ScheduleKind kind, const char* warmup, const char* decay) {
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
  const bool given = decay != nullptr && !config.is(decay, kAuto);
  result.decay = given ? config.integer(decay) : std::clamp<int64_t>(result.total / 5, 1, room);
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
  auto result = make_schedule(config, kind, "optimizer.gamma_warmup", /*decay=*/nullptr);
  const double floor = config.real("optimizer.gamma_floor");
  if (kind != ScheduleKind::Constant) {
    result.floor = floor;
  } else if (floor != 0) {
    throw Error(fmt::format("{}: needs an optimizer.gamma_schedule other than \"constant\"",
                            config.where("optimizer.gamma_floor")));
  }
  return result;
}

// Returns a path that does not depend on the working folder, so that a run can be resumed from anywhere.
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

// Throws prism::Error if the tokens of a batch do not fit into memory, or those of the run into 63 bits.
void check_batch(const Config& config) {
  const auto context =
      config.is("train.context", kAuto) ? model::preset(preset_of(config)).context : config.integer("train.context");
  const double tokens = static_cast<double>(config.integer("train.batch")) * static_cast<double>(context + 1);
  const double gigabytes = tokens * sizeof(int64_t) / 1e9, memory = static_cast<double>(memory_bytes()) / 1e9;
  if (gigabytes >= memory) {
    throw Error(
        fmt::format("{}: expected a batch whose tokens fit into this machine's memory ({:.0f} GB), got {} sequences of "
                    "{} tokens ({:.0f} GB)",
                    config.where("train.batch"), memory, config.integer("train.batch"), context, gigabytes));
  }
  const auto most = std::numeric_limits<int64_t>::max() / (config.integer("train.batch") * context);
  if (config.integer("train.steps") > most)
    throw Error(fmt::format("{}: expected at most {}, so that the number of tokens fits into 63 bits, got {}",
                            config.where("train.steps"), most, config.integer("train.steps")));
}

void fill(Config& config, const char* key, const nlohmann::json& value) {
  if (config.is(key, kAuto)) config.assign(key, value, config.where(key));
}

}  // namespace

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
  check_sizes(config, model);
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
    throw Error(fmt::format("{}: needs schedule.kind = \"wsd\", got \"{}\"; leave the key out",
                            config.where("schedule.decay"), config.string("schedule.kind")));
  }
  auto result = make_schedule(config, kind, "schedule.warmup", "schedule.decay");
  if (kind != ScheduleKind::Constant) {
    result.floor = config.is("schedule.floor", kAuto) ? 0.1 : config.real("schedule.floor");
  } else if (!config.is("schedule.floor", kAuto)) {
    throw Error(fmt::format("{}: schedule.kind = \"constant\" has no floor; leave the key out",
                            config.where("schedule.floor")));
  }
  return result;
}

OptimizerPair optimizer_options(const Config& config) {
  const auto name = config.string("optimizer.name");
  const auto defaults = make_options(name);
  const auto section = config.section("optimizer");
  std::set<std::string> known;  // the options that have a key
  for (const auto& option : defaults->table()) {
    if (section.contains(option.name)) known.insert(option.name);
  }

  Json values = Json::object();
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
  // The rate of AdamW inside Mixed is that of the rest. On hidden matrices an elementwise optimizer keeps its own.
  if (const auto own = make_options(name); !own->takes_matrices() && !values.contains("lr")) values["lr"] = own->lr();
  const auto betas = config.reals("optimizer.aux_betas");
  OptimizerPair pair;
  pair.matrices = with_user_errors("optimizer", [&] { return make_mixed_options(name, values); });
  pair.rest = with_user_errors("optimizer.aux", [&] {
    return make_options("adamw", {{"lr", aux_rate(config, *pair.matrices)},
                                  {"betas", betas},
                                  {"weight_decay", config.real("optimizer.aux_weight_decay")}});
  });
  check_decay(config, "optimizer.weight_decay", *pair.matrices);
  check_decay(config, "optimizer.aux_weight_decay", *pair.rest);
  return pair;
}

void resolve(Config& config, int64_t vocab) {
  config.reset("compare");
  make_paths_absolute(config);
  auto model = model_config(config, vocab);
  for (const auto& [key, size] : sizes_of(model)) fill(config, key, *size);
  fill(config, "model.rope_theta", model.rope_theta);
  // An imported model may allow sequences far longer than is practical in training.
  fill(config, "train.context", std::min(model.context, model::preset(preset_of(config)).context));
  if (config.integer("train.context") > model.context) {
    throw Error(fmt::format("{}: expected at most {}, the model's longest sequence, got {}",
                            config.where("train.context"), model.context, config.integer("train.context")));
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
  // A file with both numbers would be refused.
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
  // A given tokenizer may have another vocabulary, but no other number depends on it.
  if (config.string("model.init").empty()) model_config(config, config.integer("data.vocab"));
  check_batch(config);
}

}  // namespace prism::train
