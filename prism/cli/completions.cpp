#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/io/spelling.h"
#include "prism/train/config.h"

namespace prism::cli {
namespace {

using Words = std::vector<std::string>;

// The values that an option or argument takes.
struct Value {
  bool files = false;
  bool settings = false;  // section.key=value
  Words words = {};
};

struct OptionEntry {
  std::string name, summary;
  bool takes_value = false;
  Value value;
};

struct CommandEntry {
  std::string path, summary;  // "tokenizer train"
  Words commands;             // that follow it
  std::vector<OptionEntry> options;
  Value argument;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Value value_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  const auto has = [&](const char* part) { return type.find(part) != std::string::npos; };
  if (has("section.key")) return {.settings = true};
  if (has("|")) return {.words = io::split(type, '|')};
  if (has("DEVICE")) return {.words = {"auto", "cpu", "cuda"}};
  return {.files = has("PATH") || has("FILE") || has("FOLDER")};
}

// Collects every command and its options from the tables that the parser and --help use.
void collect(const CLI::App& app, const std::string& path, std::vector<CommandEntry>& entries) {
  CommandEntry entry{path, first_line(app.get_description()), {}, {}, {}};
  for (const CLI::App* command : app.get_subcommands({})) entry.commands.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden from the help too
    if (option->get_lnames().empty()) {
      const auto value = value_of(*option);
      entry.argument.files |= value.files;
      entry.argument.words.insert(entry.argument.words.end(), value.words.begin(), value.words.end());
      continue;
    }
    const bool takes_value = option->get_items_expected_max() > 0;
    entry.options.push_back({"--" + option->get_lnames().front(), first_line(option->get_description()), takes_value,
                             takes_value ? value_of(*option) : Value{}});
  }
  entries.push_back(entry);
  for (const CLI::App* command : app.get_subcommands({}))
    collect(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), entries);
}

// Joins the lines of a shell's `case` over `$1`.
template <typename Print>
std::string case_lines(const std::vector<CommandEntry>& entries, const Print& print) {
  std::string text;
  for (const auto& entry : entries) text += print(entry);
  return text;
}

std::string line(const std::string& pattern, const Words& words) {
  return words.empty() ? "" : fmt::format("    '{}') echo '{}' ;;\n", pattern, fmt::join(words, " "));
}

// Returns the functions that bash and zsh share. `_prism_words COMMAND` prints the words that may follow a command,
// `_prism_values COMMAND OPTION` those that an option takes: "<files>" stands for file names, "<settings>" for keys.
std::string shared_functions(const std::vector<CommandEntry>& entries) {
  const auto commands = case_lines(entries, [](const auto& e) { return line(e.path, e.commands); });
  const auto words = case_lines(entries, [](const auto& e) {
    Words all = e.commands;
    for (const auto& option : e.options) all.push_back(option.name);
    all.insert(all.end(), e.argument.words.begin(), e.argument.words.end());
    if (e.argument.files) all.emplace_back("<files>");
    return line(e.path, all);
  });
  const auto values = case_lines(entries, [](const auto& e) {
    std::string lines;
    for (const auto& option : e.options) {
      if (!option.takes_value) continue;
      Words all = option.value.words;
      if (option.value.files) all.emplace_back("<files>");
      if (option.value.settings) all.emplace_back("<settings>");
      if (all.empty()) all.emplace_back("<none>");
      lines += line(e.path + " " + option.name, all);
    }
    return lines;
  });
  Words keys;
  std::string choices;
  for (const auto& key : train::config_table().keys()) {
    keys.push_back(key.name() + "=");
    choices += line(key.name(), key.words());
  }
  return fmt::format(
      "_prism_commands() {{\n  case \"$1\" in\n{}  esac\n}}\n"
      "_prism_words() {{\n  case \"$1\" in\n{}  esac\n}}\n"
      "_prism_values() {{\n  case \"$1\" in\n{}  esac\n}}\n"
      "_prism_keys() {{\n  echo '{}'\n}}\n"
      "_prism_choices() {{\n  case \"$1\" in\n{}  esac\n}}\n",
      commands, words, values, fmt::join(keys, " "), choices);
}

std::string bash_script(const std::vector<CommandEntry>& entries) {
  return "# Bash completion for prism. In this shell:  source <(prism completions bash)\n"
         "# In every shell:  prism completions bash > ~/.local/share/bash-completion/completions/prism\n" +
         shared_functions(entries) + R"(_prism() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= i list
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ " $(_prism_commands "$command") " == *" ${COMP_WORDS[i]} "* ]] && command=${command:+$command }${COMP_WORDS[i]}
  done
  if [[ $word == = ]]; then previous== word=; fi
  if [[ $previous == = ]]; then  # --set key=value, in three words
    list=$(_prism_choices "${COMP_WORDS[COMP_CWORD-2]}")
    [[ -z $list ]] && list=$(_prism_choices "${COMP_WORDS[COMP_CWORD-1]}")
  else
    list=$(_prism_values "$command $previous")
    [[ -z $list ]] && list=$(_prism_words "$command")
  fi
  if [[ $list == *'<settings>'* ]]; then list=$(_prism_keys); compopt -o nospace 2>/dev/null; fi
  if [[ $list == *'<files>'* && $word != -* ]]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")); fi
  COMPREPLY+=($(compgen -W "${list//<*>/}" -- "$word"))
}
complete -F _prism prism
)";
}

std::string zsh_script(const std::vector<CommandEntry>& entries) {
  return "#compdef prism\n"
         "# Zsh completion for prism. In this shell:  source <(prism completions zsh)\n"
         "# In every shell: write it to a file named _prism in a folder of $fpath.\n" +
         shared_functions(entries) + R"(_prism() {
  local word=${words[CURRENT]} previous=${words[CURRENT-1]} command= list i
  for ((i = 2; i < CURRENT; i++)); do
    [[ " $(_prism_commands "$command") " == *" ${words[i]} "* ]] && command=${command:+$command }${words[i]}
  done
  list=$(_prism_values "$command $previous")
  [[ -z $list ]] && list=$(_prism_words "$command")
  if [[ $list == *'<settings>'* ]]; then
    if [[ $word == *=* ]]; then
      compset -P '*='
      list=$(_prism_choices "${word%%=*}")
    else
      compadd -S '' -- $(_prism_keys)
      return
    fi
  fi
  [[ $list == *'<files>'* && $word != -* ]] && _files
  compadd -- ${=list//<*>/}
}
if [[ $funcstack[1] == _prism ]]; then _prism "$@"; else compdef _prism prism; fi
)";
}

std::string quoted(const std::string& text) {  // for fish
  std::string result = "'";
  for (const char c : text) result += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  return result + "'";
}

std::string fish_script(const std::vector<CommandEntry>& entries) {
  Words paths, keys;
  for (const auto& entry : entries) {
    if (!entry.path.empty()) paths.push_back(quoted(entry.path));
  }
  std::string text = fmt::format(
      "# Fish completion for prism:  prism completions fish > ~/.config/fish/completions/prism.fish\n"
      "function __prism_command\n"
      "  set -l path\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    set -l longer (string trim -- \"$path $word\")\n"
      "    contains -- $longer {}; and set path $longer\n"
      "  end\n"
      "  echo $path\n"
      "end\n"
      "function __prism_at\n"
      "  test \"$(__prism_command)\" = \"$argv\"\n"
      "end\n"
      "complete -c prism -f\n",
      fmt::join(paths, " "));
  for (const auto& key : train::config_table().keys()) {
    keys.push_back(key.name() + "=");
    for (const auto& word : key.words()) keys.push_back(key.name() + "=" + word);
  }
  for (const auto& entry : entries) {
    const auto at = fmt::format("complete -c prism -n {}", quoted("__prism_at " + entry.path));
    for (const auto& command : entry.commands) {
      const auto path = entry.path.empty() ? command : entry.path + " " + command;
      const auto found = std::ranges::find(entries, path, &CommandEntry::path);
      text += fmt::format("{} -a {} -d {}\n", at, command, quoted(found->summary));
    }
    if (entry.argument.files) text += at + " -F\n";
    if (!entry.argument.words.empty())
      text += fmt::format("{} -a {}\n", at, quoted(fmt::format("{}", fmt::join(entry.argument.words, " "))));
    for (const auto& option : entry.options) {
      text += fmt::format("{} -l {} -d {}", at, option.name.substr(2), quoted(option.summary));
      if (option.takes_value) text += option.value.files ? " -r -F" : " -x";
      const auto& words = option.value.settings ? keys : option.value.words;
      if (!words.empty()) text += fmt::format(" -a {}", quoted(fmt::format("{}", fmt::join(words, " "))));
      text += "\n";
    }
  }
  return text;
}

int print_completions(const CLI::App& root, const std::string& shell) {
  std::vector<CommandEntry> entries;
  collect(root, "", entries);
  fmt::print("{}", shell == "bash"  ? bash_script(entries)
                   : shell == "zsh" ? zsh_script(entries)
                                    : fish_script(entries));
  return 0;
}

}  // namespace

Command completions_command() {
  return {"completions", "Print a completion script for your shell",
          "source <(prism completions bash)\nprism completions fish > ~/.config/fish/completions/prism.fish",
          [](CLI::App& app) -> Action {
            auto shell = std::make_shared<std::string>();
            add_choice<std::string>(app, "shell", *shell, {{"bash", "bash"}, {"zsh", "zsh"}, {"fish", "fish"}},
                                    "The shell to print the script for")
                ->required();
            return [shell, &app] { return print_completions(*app.get_parent(), *shell); };
          }};
}

}  // namespace prism::cli
