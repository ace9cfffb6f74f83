#include "prism/cli/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/dist/communicator.h"
#include "prism/report/terminal_text.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kGigabyte = 1e9;

// Returns the first number in a file such as /sys/fs/cgroup/memory.max, or nothing if it says "max" instead.
std::optional<double> number_in(const char* file) {
  std::ifstream stream(file);
  double number = 0;
  if (stream >> number) return number;
  return std::nullopt;
}

double meminfo(const std::string& key) {
  return std::strtod(train::proc_value("/proc/meminfo", key).c_str(), nullptr) * 1024;
}

Finding check_memory() {
  double total = meminfo("MemTotal"), free = meminfo("MemAvailable");
  std::string limit;
  if (const auto most = number_in("/sys/fs/cgroup/memory.max"); most && *most < total) {
    total = *most;
    free = std::min(free, total - number_in("/sys/fs/cgroup/memory.current").value_or(0));
    limit = " (limit of this container)";
  }
  Finding finding{Verdict::Ok, "memory", fmt::format("{}{}, {} free", in_bytes(total), limit, in_bytes(free)), ""};
  if (free < 2 * kGigabyte) {
    finding.verdict = free < 0.5 * kGigabyte ? Verdict::Problem : Verdict::Warning;
    finding.fix = "close other programs, or use a smaller model, train.batch or train.context";
  }
  return finding;
}

// Returns the folder itself, or its nearest parent that exists.
fs::path existing(fs::path path) {
  path = fs::absolute(path).lexically_normal();
  while (!fs::exists(path)) path = path.parent_path();
  return path;
}

Finding check_disk(const std::string& what, const fs::path& folder, bool must_be_writable) {
  const fs::path place = existing(folder);
  const std::string shown = fs::absolute(folder).lexically_normal().string();
  if (!fs::is_directory(place)) {
    return {Verdict::Problem, what, fmt::format("{} is not a folder", place.string()), "choose another --out"};
  }
  std::error_code failed;
  const fs::space_info space = fs::space(place, failed);
  if (failed) return {Verdict::Warning, what, fmt::format("{}: {}", place.string(), failed.message()), ""};
  const auto free = static_cast<double>(space.available);
  Finding finding{Verdict::Ok, what, fmt::format("{} free in {}", in_bytes(free), shown), ""};
  if (::access(place.c_str(), W_OK) != 0) {
    finding.text = fmt::format("no permission to write in {}", place.string());
    finding.verdict = must_be_writable ? Verdict::Problem : Verdict::Warning;
    finding.fix = must_be_writable ? "choose another folder with --out" : "write results elsewhere with --out";
  } else if (free < 2 * kGigabyte) {
    finding.verdict = free < 0.1 * kGigabyte ? Verdict::Problem : Verdict::Warning;
    finding.fix = "free some space, keep fewer checkpoints (checkpoint.keep) or choose another --out";
  }
  return finding;
}

Finding check_terminal() {
  const Terminal terminal = terminal_of(stdout);
  const std::string kind = !terminal.live   ? "not a terminal, so progress is printed as plain lines"
                           : terminal.color ? fmt::format("{} columns, colors", terminal.width)
                                            : fmt::format("{} columns, no colors", terminal.width);
  if (report::locale_is_utf8()) return {Verdict::Ok, "terminal", kind + ", UTF-8", ""};
  return {Verdict::Warning, "terminal", kind + ", but the locale is not UTF-8, so some characters may look wrong",
          "export LANG=C.UTF-8"};
}

// The transports of this build for `prism train` on several processes.
Finding check_processes() {
  std::string text;
  for (const auto& transport : dist::transports()) {
    text += fmt::format("{}{}{}: {}", text.empty() ? "" : "; ", transport.is_built ? "" : "no ", transport.name,
                        transport.text);
  }
  return {Verdict::Ok, "processes", text, ""};
}

struct DoctorOptions {
  std::string out = "runs";
  std::string probe;
};

void print(const Finding& finding, const Terminal& terminal) {
  struct Label {
    const char* word;
    Color color;
  };
  const Label label = finding.verdict == Verdict::Ok        ? Label{"ok", Color::Green}
                      : finding.verdict == Verdict::Warning ? Label{"warning", Color::Yellow}
                                                            : Label{"problem", Color::Red};
  fmt::print("{}  {:<10} {}\n", colored(fmt::format("{:>7}", label.word), label.color, terminal), finding.what,
             finding.text);
  if (!finding.fix.empty()) fmt::print("{:>20}{}\n", "", colored("-> " + finding.fix, Color::Bold, terminal));
}

int doctor(const DoctorOptions& options) {
  if (!options.probe.empty()) return probe_product(options.probe);
  const Terminal terminal = terminal_of(stdout);
  int64_t warnings = 0, problems = 0;
  const auto report = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      print(finding, terminal);
      if (finding.verdict == Verdict::Warning) ++warnings;
      if (finding.verdict == Verdict::Problem) ++problems;
    }
  };
  report(check_torch());
  report(check_system(options.out));
  if (problems > 0) {
    fmt::print("\n{} found; training will fail until {} fixed.\n", io::counted(problems, "problem"),
               problems == 1 ? "it is" : "they are");
    return 1;
  }
  fmt::print("\nPrism can train here{}.\n", warnings > 0 ? fmt::format("; {}", io::counted(warnings, "warning")) : "");
  return 0;
}

void add_options(CLI::App& app, DoctorOptions& options) {
  add_path(app, "--out", options.out, "Folder for the results of runs")->capture_default_str();
  app.add_option("--probe", options.probe)->group("");  // hidden: the child process of a check
}

}  // namespace

std::vector<Finding> check_system(const fs::path& out) {
  return {check_memory(), check_disk("disk", fs::current_path(), false), check_disk("results", out, true),
          check_processes(), check_terminal()};
}

Command doctor_command() {
  return make_command("doctor", "Check this machine and say how to fix what is wrong",
                      "prism doctor --out /scratch/runs", add_options, doctor);
}

}  // namespace prism::cli
