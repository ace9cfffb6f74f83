#include "prism/model/generate.h"

#include <fmt/format.h>

#include <memory>

#include "prism/cli/command.h"
#include "prism/cli/model_source.h"
#include "prism/cli/options.h"
#include "prism/cli/output.h"
#include "prism/cli/text_stream.h"
#include "prism/io/error.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

struct GenerateOptions {
  std::string source, prompt, device = "cpu";
  bool no_prompt = false;
  int64_t seed = 0;
  model::GenerateOptions sampling;
};

// An empty prompt begins a new document, which is what follows the end of another.
std::vector<uint32_t> prompt_ids(const std::string& prompt, const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(prompt);
  if (!ids.empty()) return ids;
  const auto end = tokenizer.end_of_text();
  if (!end)
    throw Error(fmt::format("--prompt: expected a text, for the tokenizer has no {}", tokenizer.end_of_text_name()));
  return {*end};
}

int generate(const GenerateOptions& options) {
  model::GenerateOptions sampling = options.sampling;
  sampling.seed = static_cast<uint64_t>(options.seed);
  sampling.check();
  const OpenedModel opened = open_model(options.source, train::device_of(options.device, "--device"));
  for (const auto& text : opened.skipped) fmt::print(stderr, "prism generate: skipped {}\n", text);
  const auto& tokenizer = opened.tokenizer;
  const auto end = tokenizer.end_of_text();

  Output output("-");
  TextStream stream;
  char last = '\n';
  const auto print = [&](const std::string& text) {
    output.write(text);
    output.finish();
    if (!text.empty()) last = text.back();
  };
  if (!options.no_prompt) print(stream.take(options.prompt) + stream.finish());
  model::generate(opened.model, prompt_ids(options.prompt, tokenizer), sampling, end, [&](uint32_t token) {
    if (token != end) print(stream.take(tokenizer.bytes(token)));
    return true;
  });
  print(stream.finish());
  if (last != '\n') print("\n");
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto& sampling = options->sampling;
  add_path(app, "source", options->source, "Run, checkpoint or Hugging Face folder")->required();
  app.add_option("--prompt", options->prompt, "Text to continue; none begins a new document")->type_name("TEXT");
  app.add_flag("--no-prompt", options->no_prompt, "Print the continuation alone");
  add_integer(app, "--tokens", sampling.tokens, "The most tokens to add", 1);
  add_real(app, "--temperature", sampling.temperature, "0 takes the likeliest token, 1 draws as the model believes", 0,
           1e6);
  add_integer(app, "--top-k", sampling.top_k, "Draw from the K likeliest tokens alone; 0: from all", 0);
  add_real(app, "--top-p", sampling.top_p, "Draw from the likeliest that together reach this probability", 0, 1);
  add_integer(app, "--seed", options->seed, "The same seed gives the same text", 0);
  app.add_option("--device", options->device, "cpu, cuda, cuda:N or auto")->type_name("DEVICE")->capture_default_str();
  return [options] { return generate(*options); };
}

}  // namespace

Command generate_command() {
  return {"generate", "Continue a text with a trained model",
          "prism generate runs/a --prompt \"import torch\" --tokens 32 --temperature 0", attach};
}

}  // namespace prism::cli
