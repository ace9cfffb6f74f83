#include "prism/cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "prism/cli/command.h"
#include "prism/cli/options.h"
#include "prism/cli/terminal.h"

namespace prism::cli {

namespace {

struct DoctorOptions {
  std::string out = "runs";
  std::string probe;
};

void print(const Finding& finding, const Terminal& terminal) {
  struct Label {
    const char* word;
    Colour colour;
  };
  const Label label = finding.verdict == Verdict::kOk        ? Label{"ok", Colour::kGreen}
                      : finding.verdict == Verdict::kWarning ? Label{"warning", Colour::kYellow}
                                                             : Label{"problem", Colour::kRed};
  fmt::print("{}  {:<10} {}\n", coloured(fmt::format("{:>7}", label.word), label.colour, terminal), finding.what,
             finding.text);
  if (!finding.mend.empty()) fmt::print("{:>20}{}\n", "", coloured("-> " + finding.mend, Colour::kBold, terminal));
}

std::string counted(int64_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

int doctor(const DoctorOptions& options) {
  if (!options.probe.empty()) return probe_product(options.probe);
  const Terminal terminal = terminal_of(stdout);
  int64_t warnings = 0, problems = 0;
  const auto report = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      print(finding, terminal);
      if (finding.verdict == Verdict::kWarning) ++warnings;
      if (finding.verdict == Verdict::kProblem) ++problems;
    }
  };
  report(check_torch());
  report(check_system(options.out));
  if (problems > 0) {
    fmt::print("\n{} in the way of training.\n", counted(problems, "problem"));
    return 1;
  }
  fmt::print("\nPrism can train here{}.\n", warnings > 0 ? fmt::format("; {}", counted(warnings, "warning")) : "");
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  add_path(app, "--out", options->out, "Folder that runs will be written to")->capture_default_str();
  app.add_option("--probe", options->probe)->group("");  // hidden: the child process of a check
  return [options] { return doctor(*options); };
}

}  // namespace

Command doctor_command() {
  return {"doctor", "Check this machine, and say how to mend what is wrong", "prism doctor --out /scratch/runs",
          attach};
}

}  // namespace prism::cli
