#include <algorithm>
#include <set>

#include "prism/io/spelling.h"
#include "prism/optim/adam.h"
#include "prism/optim/registry.h"
#include "prism/text/tokenizer.h"
#include "prism/train/config.h"

namespace prism::train {
namespace {

using Key = io::ConfigKey;

constexpr double kMostRate = 1e30;     // far above any useful rate, and finite in float32, the type of the weights
constexpr int64_t kMostThreads = 256;  // OpenMP ends the program if it cannot start all threads

std::vector<std::string> schedule_kinds() { return {kWords<ScheduleKind>.begin(), kWords<ScheduleKind>.end()}; }

Key option_key(const Option& option) {
  const auto name = "optimizer." + option.name;
  if (option.type == "number") return Key::real(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integer") return Key::integer(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "boolean") return Key::boolean(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "integers") return Key::integers(name, kAuto, option.doc).or_word(kAuto);
  if (option.type == "pair") return Key::reals(name, kAuto, option.doc).length(2).or_word(kAuto);
  if (option.type == "coefficients") {
    auto key = Key::real_lists(name, kAuto, option.doc).or_word(kAuto);
    for (const auto& word : Coefficients::names()) key = std::move(key).or_word(word);
    return key;
  }
  auto words = io::split(option.type, '|');
  if (std::find(words.begin(), words.end(), kAuto) == words.end()) words.emplace_back(kAuto);
  return Key::string(name, kAuto, option.doc).one_of(words);
}

// Returns false for options without a key of the same form. `lr` and `gamma_schedule` have keys of their own. The
// trainer minimizes, guards against non-finite steps and chooses what to capture. Its weights are float32 matrices and
// vectors, so there is nothing to fold, to split or to keep a master copy of.
bool is_key(const Option& option) {
  static const std::set<std::string> excluded = {"lr",    "maximize", "skip_nonfinite", "capturable",
                                                 "split", "fold",     "master_weights", "gamma_schedule"};
  return !excluded.contains(option.name);
}

Key rate_key(const char* name, const char* doc) {
  return Key::real(name, kAuto, doc).at_least(0).at_most(kMostRate).or_word(kAuto);
}

bool is_not_empty(const nlohmann::json& text) { return !text.get_ref<const std::string&>().empty(); }

Key text_key(const char* name, const nlohmann::json& fallback, const char* doc) {
  return Key::string(name, fallback, doc).must("not empty", is_not_empty);
}

Key size_key(const char* name, const char* doc) { return Key::integer(name, kAuto, doc).at_least(1).or_word(kAuto); }

std::vector<Key> optimizer_keys() {
  std::vector<Key> keys = {
      Key::string("optimizer.name", "prism", "Optimizer of the hidden matrices.").one_of(optimizer_names()),
      rate_key("optimizer.lr", "Peak learning rate of the hidden matrices."),
  };
  std::set<std::string> seen;
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& option : options->table()) {
      if (is_key(option) && seen.insert(option.name).second) keys.push_back(option_key(option));
    }
  }
  keys.insert(
      keys.end(),
      {
          Key::string("optimizer.gamma_schedule", "constant", "Schedule of γ over the run.").one_of(schedule_kinds()),
          Key::integer("optimizer.gamma_warmup", 0, "Steps over which γ rises to its value.").at_least(0),
          Key::real("optimizer.gamma_floor", 0.0, "Last value of γ's schedule, as a fraction of γ.")
              .at_least(0)
              .at_most(1),
          rate_key(
              "optimizer.aux_lr",
              "Peak learning rate of AdamW on the rest: embeddings, head, norms, biases; auto: 0.02 beside a spectral "
              "optimizer, optimizer.lr beside an elementwise one, or optimizer.aux_ratio times optimizer.lr."),
          rate_key(
              "optimizer.aux_ratio",
              "Peak learning rate of the rest as a multiple of optimizer.lr, instead of optimizer.aux_lr; auto: none."),
          Key::reals("optimizer.aux_betas", kMixedBetas, "AdamW's β₁ and β₂ for the rest.")
              .length(2)
              .at_least(0)
              .below(1),
          Key::real("optimizer.aux_weight_decay", 0.01, "Decoupled weight decay of the rest.").at_least(0),
      });
  return keys;
}

std::vector<Key> model_keys() {
  return {
      Key::string("model.preset", kAuto, "Preset of the sizes below; auto: 22m, or the sizes of model.init.")
          .one_of(model::preset_names())
          .or_word(kAuto),
      size_key("model.layers", "Number of decoder blocks; auto, here and below: the preset's."),
      size_key("model.width", "Width of the residual stream."),
      size_key("model.heads", "Number of attention heads."),
      size_key("model.kv_heads", "Number of key-value heads; must divide model.heads."),
      Key::integer("model.head_dim", kAuto, "Size of one head; auto: width / heads.")
          .at_least(2)
          .must("an even number", [](const nlohmann::json& value) { return value.get<int64_t>() % 2 == 0; })
          .or_word(kAuto),
      size_key("model.mlp", "Inner width of the SwiGLU block."),
      Key::boolean("model.tied", true, "Share the embedding's weights with the head."),
      Key::real("model.rope_theta", kAuto, "Base of the rotary angles.").above(0).or_word(kAuto),
      Key::boolean("model.recompute", false, "Recompute activations in the backward pass: less memory, more time."),
      Key::string("model.init_scale", "qwen2",
                  "Random weights: qwen2 draws every matrix from N(0, 0.02²); depth divides the attention and MLP "
                  "output projections by √(2 · layers).")
          .one_of({"qwen2", "depth"}),
      Key::string("model.init", "", "Hugging Face folder to start from; empty: random weights from train.seed."),
  };
}

// Returns true if no path of data.path or data.held_out_path is empty.
bool names_paths(const nlohmann::json& paths) {
  return std::ranges::all_of(paths,
                             [](const auto& path) { return is_not_empty(path.is_string() ? path : path.at("path")); });
}

std::vector<Key> data_keys() {
  return {
      Key::weighted_paths("data.path", nullptr,
                          "Files and folders of text, folders of token shards, or \"torch-sources\": the Python files "
                          "of the installed torch. An epoch reads each path `weight` times, by default once.")
          .length(1, 1000)
          .must("none of them empty", names_paths),
      Key::strings("data.extensions", nlohmann::json::array(),
                   "Endings of the files to read in folders; empty: all files."),
      Key::string("data.separator", "<|endoftext|>", "Line that ends a document in text files; empty: none."),
      Key::string("data.text_field", "text", "Field of JSON lines, or column of Parquet files, that holds the text."),
      text_key("data.tokenizer", kAuto,
               "tokenizer.json or a folder with one; auto: the one of model.init or of the shards, else a new one "
               "is trained."),
      text_key("data.eos", std::string(text::kEndOfText), "Special token that ends every document."),
      Key::integer("data.vocab", 16384, "Vocabulary size of a tokenizer that is trained.").at_least(257),
      Key::real("data.held_out", kAuto,
                "Fraction of the documents kept for evaluation; auto: 0.01, or none with data.held_out_path.")
          .above(0)
          .below(1)
          .or_word(kAuto),
      Key::strings("data.held_out_path", nlohmann::json::array(),
                   "Files and folders of text to evaluate on, instead of documents of data.path.")
          .must("none of them empty", names_paths),
      text_key("data.cache", kAuto, "Folder for the tokenizer and the shards; auto: data in the run folder."),
  };
}

std::vector<Key> train_keys() {
  return {
      Key::integer("train.steps", 1000, "Number of optimizer steps.").at_least(1),
      Key::integer("train.batch", 32, "Sequences per optimizer step, accumulation included.").at_least(1),
      size_key("train.context", "Tokens per sequence; auto: the preset's."),
      Key::integer("train.accumulate", 1, "Passes per optimizer step; must divide train.batch.").at_least(1),
      Key::real("train.clip", 1.0, "Norm to which larger gradients are scaled down; 0: no clipping.").at_least(0),
      Key::integer("train.seed", 1, "Seed of the initial weights and of the data order.").at_least(0),
      Key::integer("train.eval_every", 100, "Steps between evaluations on held-out text; 0: only at the end.")
          .at_least(0),
      Key::integer("train.eval_sequences", 128, "Held-out sequences per evaluation; 0: all.").at_least(0),
      Key::integer("train.patience", 0,
                   "Stop after this many evaluations in a row without a better held-out loss; 0: never.")
          .at_least(0),
      Key::boolean("train.deterministic", false, "Make runs on a GPU repeat bit for bit; runs on the CPU always do."),
      Key::boolean("train.exact_reduction", false,
                   "Add gradients in a fixed order, so that any number of processes that divides train.accumulate "
                   "gives the same weights, bit for bit."),
      Key::boolean("train.graph", true, "On a GPU, replay steps from a CUDA graph if the optimizer allows it."),
      Key::integer("train.max_skips", 10, "Stop after this many non-finite steps in a row.").at_least(1),
      Key::string("schedule.kind", "cosine", "Schedule of both learning rates.").one_of(schedule_kinds()),
      Key::integer("schedule.warmup", kAuto,
                   "Steps of linear warm-up; auto: 100, or a tenth of train.steps if that is less.")
          .at_least(0)
          .or_word(kAuto),
      Key::real("schedule.floor", kAuto, "Last rate, as a fraction of the peak; auto: 0.1, or none when constant.")
          .at_least(0)
          .at_most(1)
          .or_word(kAuto),
      size_key("schedule.decay", "Steps of wsd's decay; auto: a fifth of train.steps."),
  };
}

std::vector<Key> run_keys() {
  return {
      Key::integer("checkpoint.every", 500, "Steps between checkpoints; 0: only at the end.").at_least(0),
      Key::integer("checkpoint.keep", 3, "Number of checkpoints to keep.").at_least(1),
      Key::boolean("checkpoint.best", false,
                   "Also keep the weights with the lowest held-out loss so far, in the folder best."),
      Key::integer("metrics.spectra_every", 0, "Steps between records of spectra, SNR and gain; 0: none.").at_least(0),
      Key::boolean("metrics.norms", true,
                   "Record the norms of gradient, momentum, innovation, update and weights of each type of hidden "
                   "matrix at every step."),
      Key::boolean("metrics.tensorboard", true, "Write TensorBoard event files."),
      Key::boolean("metrics.csv", true, "Write metrics.csv, the scalars of metrics.jsonl as a table."),
      Key::string("run.device", kAuto, "cpu, cuda or cuda:N; auto: the first GPU, else the CPU."),
      Key::integer("run.threads", 0, "CPU threads; 0: torch's default.").at_least(0).at_most(kMostThreads),
      Key::boolean("run.owned", true,
                   "With several processes, let one of them step each parameter and keep its optimizer state; false: "
                   "every process steps all parameters."),
      Key::integer("run.peer_timeout", 600, "With several processes, seconds to wait for another one.").at_least(1),
      text_key("run.out", nullptr, "Folder of the run."),
      Key::strings("compare.optimizers", nlohmann::json::array(),
                   "Names to compare: optimizers, or names defined by [compare.override.NAME]."),
      Key::string(
          "compare.label", "",
          "In [compare.override.NAME]: the label of NAME in tables and on the page; empty: made from the name."),
      Key::reals("compare.lr", nlohmann::json::array(), "Learning rates to run each of them at.")
          .above(0)
          .at_most(kMostRate),
      Key::integers("compare.seeds", {1},
                    "Seeds; the first selects the best rates, the others measure the loss at them.")
          .at_least(0),
      Key::integer("compare.jobs", 1,
                   "Number of runs at a time, each in its own process and, with several GPUs, on its own GPU; the "
                   "results are the same.")
          .at_least(1)
          .at_most(64),
      Key::real("compare.tolerance", 0.02, "A rate is good if its held-out loss is at most this much above the best.")
          .above(0),
      Key::string("compare.baseline", kAuto,
                  "Name that the others are compared with; auto: the best whose optimizer is not prism."),
      Key::string("compare.prompt", "",
                  "Text that the best model of each optimizer continues at the end; empty: none."),
      Key::integer("compare.sample_tokens", 48, "Tokens of the continuation.").at_least(1),
  };
}

}  // namespace

const io::ConfigTable& config_table() {
  static const io::ConfigTable table = [] {
    std::vector<Key> keys;
    for (const auto& part : {model_keys(), data_keys(), train_keys(), optimizer_keys(), run_keys()})
      keys.insert(keys.end(), part.begin(), part.end());
    return io::ConfigTable(std::move(keys), "compare.override");
  }();
  return table;
}

io::Config make_config() { return io::Config(config_table()); }

}  // namespace prism::train
