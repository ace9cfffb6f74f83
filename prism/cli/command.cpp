#include "prism/cli/command.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <new>
#include <sstream>

#include "prism/cli/console.h"
#include "prism/io/error.h"
#include "prism/io/spelling.h"
#include "prism/train/config.h"

namespace prism::cli {
namespace {

constexpr size_t kHelpColumn = 28;

// Returns the innermost command that the parser recognized: `train` of `prism tokenizer train`.
const CLI::App& named_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : named_command(*chosen.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// Returns the --set form of an unknown option that is named like a configuration key (--steps 20, --train.steps=20).
// Returns "" if the command takes no keys or no key has that name.
std::string as_setting(const CLI::App& app, const std::vector<std::string>& words, size_t at) {
  if (app.get_option_no_throw("--set") == nullptr || !words[at].starts_with("--")) return "";
  const auto equals = words[at].find('=');
  const auto name = words[at].substr(2, equals == std::string::npos ? equals : equals - 2);
  std::string value = "VALUE";
  if (equals != std::string::npos)
    value = words[at].substr(equals + 1);
  else if (at + 1 < words.size() && !words[at + 1].starts_with("--"))
    value = words[at + 1];
  for (const auto& key : train::config_table().keys()) {
    if (key.name() == name || key.name().ends_with("." + name)) return fmt::format("--set {}={}", key.name(), value);
  }
  return "";
}

// Describes the first word that no option, argument or command of `app` took. Returns "" if there is none.
std::string unexpected(const CLI::App& app) {
  const auto words = app.remaining();
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") continue;
    const bool is_option = word.size() > 1 && word.front() == '-';
    if (const auto setting = as_setting(app, words, i); is_option && !setting.empty())
      return fmt::format("unknown option '{}'; set configuration keys with {}", word, setting);
    const auto known = is_option ? option_names(app) : command_names(app);
    if (!is_option && known.empty()) return fmt::format("unexpected argument '{}'", word);
    const std::string nearest = io::nearest_word(word.substr(0, word.find('=')), known);
    return fmt::format("unknown {} '{}'{}", is_option ? "option" : "command", word,
                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
  return "";
}

// Describes a parse error in this program's words.
std::string parse_mistake(const CLI::App& app, const CLI::ParseError& error) {
  if (std::string text = unexpected(app); !text.empty())
    return text;  // before "X is required", which also appears if X is misspelled
  if (!command_names(app).empty()) return fmt::format("expected one of: {}", fmt::join(command_names(app), ", "));
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const bool missing = text.ends_with("missing");
    return fmt::format("{}: expected {}", text.substr(0, text.find(':')), missing ? "a value" : "it only once");
  }
  return text;
}

int report(const std::string& who, std::string message, int status) {
  for (size_t at; (at = message.find('\n')) != std::string::npos;) message.replace(at, 1, " ");
  if (!message.empty()) say(stderr, fmt::format("{}: {}\n", who, message));
  return status;
}

int refuse(const CLI::App& command, const std::string& mistake) {
  const std::string who = full_name(command);
  return report(who, fmt::format("{} (see {} --help)", mistake, who), kWrongInput);
}

// Returns the words after the program's name, last first, as the parser expects them. Rewrites `prism help train` as
// `prism train --help`.
std::vector<std::string> reversed_words(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);
  return words;
}

}  // namespace

Action attach_commands(CLI::App& app, const std::vector<Command>& commands) {
  auto actions = std::make_shared<std::vector<std::pair<CLI::App*, Action>>>();
  app.require_subcommand(1);
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary)->group("Commands");
    sub->footer("Example:\n  " + CLI::detail::find_and_replace(command.example, "\n", "\n  "));
    actions->emplace_back(sub, command.attach(*sub));
  }
  return [actions] {
    for (const auto& [sub, action] : *actions) {
      if (sub->parsed()) return action();
    }
    throw std::logic_error("no command was parsed");
  };
}

int perform(const Action& action, const std::string& who) {
  try {
    return action();
  } catch (const Error& error) {
    return report(who, error.what(), kWrongInput);
  } catch (const c10::ValueError& error) {
    return report(who, error.what_without_backtrace(), kWrongInput);
  } catch (const c10::Error& error) {
    return report(who, error.what_without_backtrace(), kFailed);
  } catch (const std::bad_alloc&) {
    return report(who, "out of memory", kFailed);
  } catch (const std::exception& error) {
    return report(who, error.what(), kFailed);
  }
}

int run(int argc, const char* const* argv) {
  CLI::App app("Train language models with PRISM and other optimizers, and compare them.", "prism");
  app.set_version_flag("--version", "prism " PRISM_VERSION);
  app.get_formatter()->column_width(kHelpColumn);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.footer("`prism COMMAND --help` shows the options of a command and an example.");
  Action action = attach_commands(app, commands());
  try {
    if (argc < 2) throw CLI::CallForHelp();
    app.parse(reversed_words(argc, argv));
  } catch (const CLI::Success& asked) {  // --help, --version
    const CLI::App& command = named_command(app);
    const std::string mistake = command_names(command).empty() ? "" : unexpected(command);
    if (!mistake.empty()) return refuse(command, mistake);
    action = [&app, asked] {
      std::ostringstream text;  // std::cout would flush and lose the reason of a failure
      const int status = app.exit(asked, text);
      fmt::print("{}", text.str());
      return status;
    };
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = named_command(app);
    return refuse(command, parse_mistake(command, error));
  }
  const auto finished = [&action] {
    const int status = action();
    finish_output();
    return status;
  };
  return perform(finished, full_name(named_command(app)));
}

std::vector<Command> commands() {
  return {
      train_command(), compare_command(),  reproduce_command(), inspect_command(),
      eval_command(),  generate_command(), export_command(),    tokenizer_command(),
      data_command(),  bench_command(),    doctor_command(),    completions_command(),
  };
}

}  // namespace prism::cli
