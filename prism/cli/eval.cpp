#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/model_source.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/io/safetensors.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

struct EvalOptions {
  std::string source, device = "cpu", logits;
  CorpusOptions corpus;
  int64_t context = 0;
  int64_t batch = 8;
  bool json = false;
};

// The tokens of a text as in training: end-of-text stands before the first document and after each, so that every token
// of the text has a token before it. If the tokenizer has no end-of-text, only the tokens of the documents.
struct Tokens {
  std::vector<int64_t> ids;
  uint64_t bytes = 0;
  int64_t documents = 0;
};

Tokens read_tokens(const data::Corpus& corpus, const text::Tokenizer& tokenizer, ProgressLine& line) {
  Tokens tokens;
  const auto end = tokenizer.end_of_text();
  if (end) tokens.ids.push_back(*end);
  data::Documents documents(corpus);
  std::vector<uint32_t> ids;
  for (data::Piece piece; documents.next(piece);) {
    ids.clear();
    tokenizer.encode(piece.text, ids, text::SpecialTokens::Text);
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    tokens.bytes += piece.text.size();
    if (piece.last && end) tokens.ids.push_back(*end);
    if (line.due()) line.update(fmt::format("encoding  {}", in_bytes(static_cast<double>(tokens.bytes))));
  }
  tokens.documents = documents.documents();
  return tokens;
}

// Computes the mean loss over adjacent windows of `context` tokens, each target once. Keeps the logits for --logits.
class Evaluation {
 public:
  Evaluation(const model::Qwen2& model, const std::vector<int64_t>& ids, const EvalOptions& options)
      : model_(model), ids_(ids), options_(options), targets_(static_cast<int64_t>(ids.size()) - 1) {
    if (targets_ < 1) throw Error("expected text of at least two tokens, got fewer");
    if (!options.logits.empty()) {
      const double bytes = 4.0 * static_cast<double>(targets_) * static_cast<double>(model.config().vocab);
      if (bytes > 0.5 * static_cast<double>(train::memory_bytes())) {
        throw Error(
            fmt::format("--logits: expected logits that fit into half of this machine's memory, got {} tokens × "
                        "{} logits, {}; give less text",
                        grouped(targets_), grouped(model.config().vocab), in_bytes(bytes)));
      }
      logits_ = at::empty({targets_, model.config().vocab}, at::kFloat);
    }
  }

  double mean_loss(ProgressLine& line, const Interrupt& interrupt) {
    const at::NoGradGuard no_gradients;
    const int64_t T = options_.context, whole = targets_ / T;
    const Pace pace;
    double sum = 0;
    const auto add = [&](int64_t first, int64_t rows, int64_t length) {
      interrupt.check();
      sum += window_loss(first, rows, length) * static_cast<double>(rows * length);
      const auto done = static_cast<double>(first + rows * length), all = static_cast<double>(targets_);
      if (line.due())
        line.update(
            fmt::format("evaluating  {}  ETA {}", in_percent(done, all), in_time(pace.seconds_left(done, all))));
    };
    for (int64_t window = 0; window < whole; window += options_.batch)
      add(window * T, std::min(options_.batch, whole - window), T);
    if (targets_ % T > 0) add(whole * T, 1, targets_ % T);
    return sum / static_cast<double>(targets_);
  }

  int64_t targets() const { return targets_; }

  void write_logits() const {
    const auto view = [](const char* name, const char* dtype, const at::Tensor& tensor) {
      return io::TensorView{name, dtype, tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr()),
                            tensor.nbytes()};
    };
    const auto targets = at::from_blob(const_cast<int64_t*>(ids_.data() + 1), {targets_}, at::kLong);
    const io::TensorView views[] = {view("logits", io::kFloat32, logits_), view("targets", io::kInt64, targets)};
    io::write_safetensors(options_.logits, views, {});
  }

 private:
  // Returns the mean loss of `rows` rows of `length` targets each. The first target follows token `first`.
  double window_loss(int64_t first, int64_t rows, int64_t length) {
    std::vector<at::Tensor> windows;
    for (int64_t row = 0; row < rows; ++row)
      windows.push_back(
          at::from_blob(const_cast<int64_t*>(ids_.data() + first + row * length), {1, length + 1}, at::kLong));
    const auto tokens = at::cat(windows).to(model_.device());
    if (!logits_.defined()) return model_.loss(tokens).item<double>();
    const auto logits = model_.forward(tokens.narrow(1, 0, length)).cpu();
    logits_.narrow(0, first, rows * length).copy_(logits.view({rows * length, -1}));
    const auto targets = tokens.narrow(1, 1, length).cpu().unsqueeze(-1);
    return -at::log_softmax(logits, -1, at::kDouble).gather(-1, targets).mean().item<double>();
  }

  const model::Qwen2& model_;
  const std::vector<int64_t>& ids_;
  const EvalOptions& options_;
  int64_t targets_;
  at::Tensor logits_;
};

int eval(const EvalOptions& given) {
  EvalOptions options = given;
  if (!options.logits.empty()) check_writable(options.logits);
  const auto corpus = options.corpus.open();
  ProgressLine line;
  line.doing("reading the model");
  const OpenedModel opened = open_model(options.source, train::device_of(options.device, "--device"));
  for (const auto& text : opened.skipped) line.note(fmt::format("prism eval: skipped {}", text));
  const auto longest = opened.model.config().context;
  if (options.context == 0) options.context = longest;
  if (options.context > longest)
    throw Error(fmt::format("--context: expected at most the model's {} tokens, got {}", longest, options.context));
  const Interrupt interrupt;
  const auto tokens = read_tokens(corpus, opened.tokenizer, line);
  Evaluation evaluation(opened.model, tokens.ids, options);
  line.doing("evaluating");
  const double loss = evaluation.mean_loss(line, interrupt);
  if (!options.logits.empty()) evaluation.write_logits();
  line.clear();

  const auto targets = static_cast<double>(evaluation.targets()), bytes = static_cast<double>(tokens.bytes);
  const double bits_per_byte = loss * targets / std::log(2.0) / bytes;
  if (options.json) {
    const nlohmann::ordered_json result = {{"model", opened.from.string()},  {"loss", loss},
                                           {"perplexity", std::exp(loss)},   {"bits_per_byte", bits_per_byte},
                                           {"tokens", evaluation.targets()}, {"bytes", tokens.bytes},
                                           {"documents", tokens.documents},  {"context", options.context}};
    fmt::print("{}\n", result.dump(2));
    return 0;
  }
  fmt::print("{}\n", opened.from.string());
  fmt::print("  loss           {:.4f} nats per token\n", loss);
  fmt::print("  perplexity     {:.4g}\n", std::exp(loss));
  fmt::print("  bits per byte  {:.4f}\n", bits_per_byte);
  fmt::print("  text           {} in {}, {}, {:.2f} bytes per token\n", io::counted(evaluation.targets(), "token"),
             io::counted(tokens.documents, "document"), in_bytes(bytes), bytes / targets);
  if (!options.logits.empty()) fmt::print("  logits         {}\n", options.logits);
  return 0;
}

void add_options(CLI::App& app, EvalOptions& options) {
  add_path(app, "source", options.source, "Run, checkpoint or Hugging Face folder")->required();
  options.corpus.add_to(app);
  add_integer(app, "--context", options.context, "Tokens that a prediction may see; 0: the model's\ncontext", 0);
  add_integer(app, "--batch", options.batch, "Sequences per batch", 1, 1 << 16);
  add_path(app, "--logits", options.logits, "Write the logits and targets of all tokens to this\nsafetensors file");
  app.add_flag("--json", options.json, "Print the figures as JSON");
  add_device(app, options.device);
}

}  // namespace

Command eval_command() {
  return make_command("eval", "Measure a model's loss and perplexity on a text",
                      "prism eval runs/a valid.txt\nprism eval hf/ valid.txt --logits logits.safetensors --json",
                      add_options, eval);
}

}  // namespace prism::cli
