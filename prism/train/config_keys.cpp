#include <algorithm>
#include <set>

#include "prism/io/spelling.h"
#include "prism/optim/adam.h"
#include "prism/optim/registry.h"
#include "prism/text/tokenizer.h"
#include "prism/train/config.h"

namespace prism::train {
namespace {

using io::ConfigKey;

constexpr double kMostRate = 1e30;     // far above any useful rate, and finite in float32, the type of the weights
constexpr int64_t kMostThreads = 256;  // OpenMP ends the program if it cannot start all threads

std::vector<std::string> schedule_kinds() {
  return {Words<ScheduleKind>::kList.begin(), Words<ScheduleKind>::kList.end()};
}

ConfigKey option_key(const Option& option) {
  const auto name = "optimizer." + option.name;
  if (option.type == "number") return ConfigKey::real(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integer") return ConfigKey::integer(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "boolean") return ConfigKey::boolean(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integers") return ConfigKey::integers(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "pair") return ConfigKey::reals(name, kAuto, option.doc).length(2).or_word(kAuto);
  if (option.type == "coefficients") {
    auto key = ConfigKey::real_lists(name, kAuto, option.doc).or_word(kAuto);
    for (const auto& word : Coefficients::names()) key = std::move(key).or_word(word);
    return key;
  }
  auto words = io::split(option.type, '|');
  if (std::find(words.begin(), words.end(), kAuto) == words.end()) words.emplace_back(kAuto);
  return ConfigKey::string(name, kAuto, option.doc).one_of(words);
}

// Returns false for options without a key of the same form. `lr` and `gamma_schedule` have keys of their own. The
// trainer minimizes, guards against non-finite steps and chooses what to capture. Its weights are float32 matrices and
// vectors, so there is nothing to fold, to split or to keep a master copy of.
bool is_key(const Option& option) {
  static const std::set<std::string> excluded = {"lr",    "maximize", "skip_nonfinite", "capturable",
                                                 "split", "fold",     "master_weights", "gamma_schedule"};
  return !excluded.contains(option.name);
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
  keys.push_back(ConfigKey::string("optimizer.gamma_schedule", "constant", "Schedule of γ over the run.")
                     .one_of(schedule_kinds()));
  keys.push_back(ConfigKey::integer("optimizer.gamma_warmup", 0, "Steps over which γ rises to its value.").at_least(0));
  keys.push_back(ConfigKey::real("optimizer.gamma_floor", 0.0, "Last value of γ's schedule, as a fraction of γ.")
                     .at_least(0)
                     .at_most(1));
  keys.push_back(ConfigKey::real("optimizer.aux_lr", kAuto,
                                 "Peak learning rate of AdamW on the rest: embeddings, head, norms, biases; auto: "
                                 "0.02 beside a spectral optimizer, optimizer.lr beside an elementwise one, or "
                                 "optimizer.aux_ratio times optimizer.lr.")
                     .at_least(0)
                     .at_most(kMostRate)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::real("optimizer.aux_ratio", kAuto,
                                 "Peak learning rate of the rest as a multiple of optimizer.lr, instead of "
                                 "optimizer.aux_lr; auto: none.")
                     .at_least(0)
                     .at_most(kMostRate)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::reals("optimizer.aux_betas", kMixedBetas, "AdamW's β₁ and β₂ for the rest.")
                     .length(2)
                     .at_least(0)
                     .below(1));
  keys.push_back(
      ConfigKey::real("optimizer.aux_weight_decay", 0.01, "Decoupled weight decay of the rest.").at_least(0));
}

void add_model_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(
      ConfigKey::string("model.preset", kAuto, "Preset of the sizes below; auto: 22m, or the sizes of model.init.")
          .one_of(model::preset_names())
          .or_word(kAuto));
  const auto size = [&](const char* name, const char* doc) {
    keys.push_back(ConfigKey::integer(name, kAuto, doc).at_least(1).or_word(kAuto));
  };
  size("model.layers", "Number of decoder blocks; auto, here and below: the preset's.");
  size("model.width", "Width of the residual stream.");
  size("model.heads", "Number of attention heads.");
  size("model.kv_heads", "Number of key-value heads; must divide model.heads.");
  keys.push_back(ConfigKey::integer("model.head_dim", kAuto, "Size of one head; auto: width / heads.")
                     .at_least(2)
                     .must("an even number", [](const nlohmann::json& value) { return value.get<int64_t>() % 2 == 0; })
                     .or_word(kAuto));
  size("model.mlp", "Inner width of the SwiGLU block.");
  keys.push_back(ConfigKey::boolean("model.tied", true, "Share the embedding's weights with the head."));
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
          "installed torch. An epoch reads each path `weight` times, by default once.")
          .length(1, 1000));
  keys.push_back(ConfigKey::strings("data.extensions", nlohmann::json::array(),
                                    "Endings of the files to read in folders; empty: all files."));
  keys.push_back(
      ConfigKey::string("data.separator", "<|endoftext|>", "Line that ends a document in text files; empty: none."));
  keys.push_back(ConfigKey::string("data.text_field", "text",
                                   "Field of JSON lines, or column of Parquet files, that holds the text."));
  keys.push_back(ConfigKey::string(
      "data.tokenizer", kAuto,
      "tokenizer.json or a folder with one; auto: the one of model.init or of the shards, else a new one is trained."));
  keys.push_back(
      ConfigKey::string("data.eos", std::string(text::kEndOfText), "Special token that ends every document."));
  keys.push_back(
      ConfigKey::integer("data.vocab", 16384, "Vocabulary size of a tokenizer that is trained.").at_least(257));
  keys.push_back(ConfigKey::real("data.held_out", kAuto,
                                 "Fraction of the documents kept for evaluation; auto: 0.01, or none with "
                                 "data.held_out_path.")
                     .above(0)
                     .below(1)
                     .or_word(kAuto));
  keys.push_back(ConfigKey::strings("data.held_out_path", nlohmann::json::array(),
                                    "Files and folders of text to evaluate on, instead of documents of data.path."));
  keys.push_back(
      ConfigKey::string("data.cache", kAuto, "Folder for the tokenizer and the shards; auto: data in the run folder."));
}

void add_train_keys(std::vector<ConfigKey>& keys) {
  keys.push_back(ConfigKey::integer("train.steps", 1000, "Number of optimizer steps.").at_least(1));
  keys.push_back(
      ConfigKey::integer("train.batch", 32, "Sequences per optimizer step, accumulation included.").at_least(1));
  keys.push_back(ConfigKey::integer("train.context", kAuto, "Tokens per sequence; auto: the preset's.")
                     .at_least(1)
                     .or_word(kAuto));
  keys.push_back(
      ConfigKey::integer("train.accumulate", 1, "Passes per optimizer step; must divide train.batch.").at_least(1));
  keys.push_back(ConfigKey::real("train.clip", 1.0, "Norm to which larger gradients are scaled down; 0: no clipping.")
                     .at_least(0));
  keys.push_back(ConfigKey::integer("train.seed", 1, "Seed of the initial weights and of the data order.").at_least(0));
  keys.push_back(
      ConfigKey::integer("train.eval_every", 100, "Steps between evaluations on held-out text; 0: only at the end.")
          .at_least(0));
  keys.push_back(
      ConfigKey::integer("train.eval_sequences", 128, "Held-out sequences per evaluation; 0: all.").at_least(0));
  keys.push_back(ConfigKey::integer("train.patience", 0,
                                    "Stop after this many evaluations in a row without a better held-out loss; "
                                    "0: never.")
                     .at_least(0));
  keys.push_back(ConfigKey::boolean("train.deterministic", false,
                                    "Make runs on a GPU repeat bit for bit; runs on the CPU always do."));
  keys.push_back(ConfigKey::boolean("train.exact_reduction", false,
                                    "Add gradients in a fixed order, so that any number of processes that divides "
                                    "train.accumulate gives the same weights, bit for bit."));
  keys.push_back(
      ConfigKey::boolean("train.graph", true, "On a GPU, replay steps from a CUDA graph if the optimizer allows it."));
  keys.push_back(
      ConfigKey::integer("train.max_skips", 10, "Stop after this many non-finite steps in a row.").at_least(1));
  keys.push_back(
      ConfigKey::string("schedule.kind", "cosine", "Schedule of both learning rates.").one_of(schedule_kinds()));
  keys.push_back(ConfigKey::integer("schedule.warmup", kAuto,
                                    "Steps of linear warm-up; auto: 100, or a tenth of train.steps if that is less.")
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
  keys.push_back(ConfigKey::integer("checkpoint.keep", 3, "Number of checkpoints to keep.").at_least(1));
  keys.push_back(ConfigKey::boolean("checkpoint.best", false,
                                    "Also keep the weights with the lowest held-out loss so far, in the folder best."));
  keys.push_back(
      ConfigKey::integer("metrics.spectra_every", 0, "Steps between records of spectra, SNR and gain; 0: none.")
          .at_least(0));
  keys.push_back(ConfigKey::boolean("metrics.norms", true,
                                    "Record the norms of gradient, momentum, innovation, update and weights of each "
                                    "type of hidden matrix at every step."));
  keys.push_back(ConfigKey::boolean("metrics.tensorboard", true, "Write TensorBoard event files."));
  keys.push_back(
      ConfigKey::boolean("metrics.csv", true, "Write metrics.csv, the scalars of metrics.jsonl as a table."));
  keys.push_back(ConfigKey::string("run.device", kAuto, "cpu, cuda or cuda:N; auto: the first GPU, else the CPU."));
  keys.push_back(
      ConfigKey::integer("run.threads", 0, "CPU threads; 0: torch's default.").at_least(0).at_most(kMostThreads));
  keys.push_back(
      ConfigKey::boolean("run.owned", true,
                         "With several processes, let one of them step each parameter and keep its optimizer "
                         "state; false: every process steps all parameters."));
  keys.push_back(ConfigKey::integer("run.peer_timeout", 600, "With several processes, seconds to wait for another one.")
                     .at_least(1));
  keys.push_back(
      ConfigKey::string("run.out", nullptr, "Folder of the run.").must("not empty", [](const nlohmann::json& value) {
        return !value.get_ref<const std::string&>().empty();
      }));
  keys.push_back(ConfigKey::strings("compare.optimizers", nlohmann::json::array(),
                                    "Names to compare: optimizers, or names defined by [compare.override.NAME]."));
  keys.push_back(ConfigKey::string(
      "compare.label", "",
      "In [compare.override.NAME]: the label of NAME in tables and on the page; empty: made from the name."));
  keys.push_back(ConfigKey::reals("compare.lr", nlohmann::json::array(), "Learning rates to run each of them at.")
                     .above(0)
                     .at_most(kMostRate));
  keys.push_back(ConfigKey::integers("compare.seeds", {1},
                                     "Seeds; the first selects the best rates, the others measure the loss at them.")
                     .at_least(0));
  keys.push_back(ConfigKey::integer("compare.jobs", 1,
                                    "Number of runs at a time, each in its own process and, with several GPUs, on its "
                                    "own GPU; the results are the same.")
                     .at_least(1)
                     .at_most(64));
  keys.push_back(ConfigKey::real("compare.tolerance", 0.02,
                                 "A rate is good if its held-out loss is at most this much above the best.")
                     .above(0));
  keys.push_back(
      ConfigKey::string("compare.baseline", kAuto,
                        "Name that the others are compared with; auto: the best whose optimizer is not prism."));
  keys.push_back(ConfigKey::string("compare.prompt", "",
                                   "Text that the best model of each optimizer continues at the end; empty: none."));
  keys.push_back(ConfigKey::integer("compare.sample_tokens", 48, "Tokens of the continuation.").at_least(1));
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

}  // namespace prism::train
