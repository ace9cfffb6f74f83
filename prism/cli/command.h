#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

namespace prism::cli {

using Action = std::function<int()>;  // returns the exit status

// One command of the program. `attach` gives the parser its options and returns what is to be done once they are read;
// what the options are read into must live in the action (a shared_ptr, say).
//
//   Command doctor_command() {
//     return {"doctor", "check this machine", "prism doctor", [](CLI::App& app) -> Action {
//       auto options = std::make_shared<DoctorOptions>();
//       app.add_option("--out", options->out, "Folder that runs will be written to")->type_name("FOLDER");
//       return [options] { return doctor(*options); };
//     }};
//   }
//
// The user's mistakes are prism::Error (or what TORCH_CHECK_VALUE throws): exit status 2. Every other exception is a
// failure while running: status 1. The message is printed after the command's name, so it need not repeat it.
struct Command {
  std::string name;
  std::string summary;  // one line of `prism --help`
  std::string example;  // shown by --help; lines without indentation
  std::function<Action(CLI::App&)> attach;
};

// Makes the commands subcommands of `app`, of which exactly one must be given; the action is that one's.
Action attach_commands(CLI::App& app, const std::vector<Command>& commands);

std::vector<Command> commands();  // all, in the order of the help

// Parses, runs, reports; returns the exit status.
int run(int argc, const char* const* argv);

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
Command tokenizer_decode_command();  // of `prism tokenizer`
Command tokenizer_encode_command();
Command train_command();

}  // namespace prism::cli
