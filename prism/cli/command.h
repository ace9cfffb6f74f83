#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace prism::cli {

using Action = std::function<int()>;  // returns the exit status

// One command of the program. `attach` adds the command's options to the parser and returns the action to run once they
// are parsed.
//
// To report a user's mistake (exit status 2), the action throws prism::Error or fails a TORCH_CHECK_VALUE. Every other
// exception is a failure while running (status 1). The message is printed after the command's name.
struct Command {
  std::string name;
  std::string summary;  // one line of `prism --help`
  std::string example;  // shown by --help; lines without indentation
  std::function<Action(CLI::App&)> attach;
};

// Returns a command whose options `add` adds to the parser and `run` receives once they are parsed.
template <typename Options>
Command make_command(std::string name, std::string summary, std::string example, void (*add)(CLI::App&, Options&),
                     int (*run)(const Options&)) {
  return {std::move(name), std::move(summary), std::move(example), [=](CLI::App& app) -> Action {
            const auto options = std::make_shared<Options>();
            add(app, *options);
            return [=] { return run(*options); };
          }};
}

// Adds the commands as subcommands of `app`, exactly one of which must be given. Returns the action that runs it.
Action attach_commands(CLI::App& app, const std::vector<Command>& commands);

std::vector<Command> commands();  // all, in the order of `prism --help`

inline constexpr int kFailed = 1, kWrongInput = 2;  // exit statuses

// Parses the arguments, runs the command and reports its errors. Returns the exit status.
int run(int argc, const char* const* argv);

// Runs an action and reports the exception that it ends with, after the name `who`; one without text is not reported.
// Returns the exit status.
int perform(const Action& action, const std::string& who);

Command bench_command();
Command compare_command();
Command completions_command();
Command data_command();
Command doctor_command();
Command eval_command();
Command export_command();
Command generate_command();
Command inspect_command();
Command reproduce_command();
Command tokenizer_command();
Command tokenizer_decode_command();  // a subcommand of `prism tokenizer`
Command tokenizer_encode_command();
Command train_command();

}  // namespace prism::cli
