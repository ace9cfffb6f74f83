#include "prism/model/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <optional>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/model_source.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/text/utf8.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

struct GenerateOptions {
  std::string source, device = "cpu";
  std::optional<std::string> prompt;
  bool no_prompt = false;
  int64_t seed = 0;
  model::GenerateOptions sampling;
};

// Returns the tokens of the prompt. An empty prompt is the end-of-text token, after which a new document begins.
std::vector<uint32_t> prompt_ids(const std::string& prompt, const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(prompt);
  if (!ids.empty()) return ids;
  const auto end = tokenizer.end_of_text();
  if (!end)
    throw Error(fmt::format("--prompt: expected text, got none; an empty prompt needs a tokenizer with {}",
                            tokenizer.end_of_text_name()));
  return {*end};
}

// Prints the continuation of the prompt until `stop` is set, after the prompt itself if `show_prompt`.
void continue_text(const OpenedModel& opened, const std::string& prompt, const model::GenerateOptions& sampling,
                   bool show_prompt, const std::atomic<int>* stop = nullptr) {
  const auto& tokenizer = opened.tokenizer;
  const auto end = tokenizer.end_of_text();
  Output output("-");
  text::Utf8Stream stream;
  char last = '\n';
  const auto print = [&](const std::string& text) {
    output.write(text);
    output.finish();
    if (!text.empty()) last = text.back();
  };
  if (show_prompt) print(stream.take(prompt) + stream.finish());
  model::generate(opened.model, prompt_ids(prompt, tokenizer), sampling, end, [&](uint32_t token) {
    if (token != end) print(stream.take(tokenizer.bytes(token)));
    return stop == nullptr || *stop == 0;
  });
  print(stream.finish());
  if (last != '\n') print("\n");
}

// Asks for prompts until the input ends (Ctrl-D). Ctrl-C stops the current text; at the prompt it ends the program.
int converse(const OpenedModel& opened, const GenerateOptions& options, model::GenerateOptions sampling) {
  const auto terminal = terminal_of(stderr);
  say(stderr,
      fmt::format(
          "{}\n{}\n", opened.from.string(),
          colored("Type the start of a text, or press Enter to begin a new one.\nCtrl-C stops the text, Ctrl-D exits.",
                  Color::Faint, terminal)));
  std::string prompt;
  while (true) {
    say(stderr, colored("> ", Color::Bold, terminal));
    if (!std::getline(std::cin, prompt)) break;
    const Interrupt interrupt;
    continue_text(opened, prompt, sampling, !options.no_prompt, &interrupt.signal());
    ++sampling.seed;  // the same prompt again gives another text
  }
  say(stderr, "\n");
  return 0;
}

int generate(const GenerateOptions& options) {
  model::GenerateOptions sampling = options.sampling;
  sampling.seed = static_cast<uint64_t>(options.seed);
  if (!(sampling.top_p > 0))
    throw Error(fmt::format("--top-p: expected a number above 0, got {}; 1 samples from all tokens", sampling.top_p));
  sampling.check();
  const OpenedModel opened = open_model(options.source, train::device_of(options.device, "--device"));
  for (const auto& text : opened.skipped) fmt::print(stderr, "prism generate: skipped {}\n", text);
  if (!options.prompt && isatty(STDIN_FILENO) == 1) return converse(opened, options, sampling);
  const auto prompt = options.prompt
                          ? *options.prompt
                          : std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  continue_text(opened, prompt, sampling, !options.no_prompt);
  return 0;
}

void add_options(CLI::App& app, GenerateOptions& options) {
  auto& sampling = options.sampling;
  add_path(app, "source", options.source, "Run, checkpoint or Hugging Face folder")->required();
  app.add_option("--prompt", options.prompt,
                 "Text to continue; without it, read one text from a\npipe, or ask for prompts on a terminal")
      ->type_name("TEXT");
  app.add_flag("--no-prompt", options.no_prompt, "Print only the continuation");
  add_integer(app, "--tokens", sampling.tokens, "Maximum number of tokens to add", 1);
  add_real(app, "--temperature", sampling.temperature, "0: the likeliest token; 1: the model's probabilities", 0, 1e6);
  add_integer(app, "--top-k", sampling.top_k, "Sample only from the N likeliest tokens; 0: from all", 0);
  add_real(app, "--top-p", sampling.top_p,
           "Sample only from the likeliest tokens that together\nreach this probability", 0, 1);
  add_integer(app, "--seed", options.seed, "The same seed gives the same text", 0);
  add_device(app, options.device);
}

}  // namespace

Command generate_command() {
  return make_command("generate", "Continue a text with a trained model",
                      "prism generate runs/a --prompt \"import torch\" --tokens 32 --temperature 0\n"
                      "prism generate runs/a                # asks for prompts",
                      add_options, generate);
}

}  // namespace prism::cli
