#include "prism/cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prism/bench/optimizers.h"
#include "prism/bench/shapes.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/report/text_table.h"

namespace prism::cli {

void BenchOptions::attach_models(CLI::App& app) {
  const auto is_model = [](const std::string& name) -> std::string {
    try {
      bench::shape_set(name);
    } catch (const Error& problem) {
      return problem.what();
    }
    return "";
  };
  add_names(app, "--model", models, CLI::Validator(is_model, ""),
            "Models whose shapes to use: demo, 22m, 124m, 1b, 7b,\nwide, experts, odd, lora, or WIDTHxLAYERS\n"
            "(default 22m; on a GPU also 1b)");
}

void BenchOptions::attach_json(CLI::App& app) {
  app.add_option("--json", json, "Add the results to this file, or create it")->type_name("FILE.json");
}

std::vector<std::string> BenchOptions::models_for(at::Device on) const {
  if (!models.empty()) return models;
  return on.is_cpu() ? std::vector<std::string>{"22m"} : std::vector<std::string>{"22m", "1b"};
}

std::optional<bench::ResultsFile> BenchOptions::results(at::Device on) const {
  if (json.empty()) return std::nullopt;
  return bench::ResultsFile(json, on);
}

std::string in_ms(double ms) {
  const int digits = ms >= 1 ? static_cast<int>(std::floor(std::log10(ms))) : 0;
  return fmt::format("{:.{}f}", ms, std::clamp(3 - digits, 0, 3));
}

std::string in_rate(double rate) { return fmt::format("{:.{}f}", rate, rate < 9.95 ? 1 : 0); }

std::string title_of(const bench::ShapeSet& set) {
  return fmt::format("{}: {} matrices, {:.0f} M parameters", set.name, set.matrices.size(),
                     static_cast<double>(set.elements()) / 1e6);
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& entrant : bench::entrants()) names.push_back(entrant.name);
  return names;
}

std::string profile_table(const bench::Profile& profile, at::Device device, size_t most) {
  using enum report::Align;
  report::TextTable table(
      {{device.is_cpu() ? "operator" : "kernel"}, {"calls", Right}, {"ms", Right}, {"share", Right}});
  const int64_t name_width = std::max<int64_t>(terminal_of(stdout).width, 60) - 26;
  const auto row = [&](const std::string& name, int64_t calls, double ms) {
    table.row({fitted(name, name_width), calls > 0 ? fmt::to_string(calls) : "", in_ms(ms),
               fmt::format("{:.1f} %", 100 * ms / profile.total_ms)});
  };
  const size_t shown = std::min(most, profile.lines.size());
  for (size_t i = 0; i < shown; ++i) row(profile.lines[i].name, profile.lines[i].calls, profile.lines[i].ms);
  bench::ProfileLine others;
  for (size_t i = shown; i < profile.lines.size(); ++i) {
    others.calls += profile.lines[i].calls;
    others.ms += profile.lines[i].ms;
  }
  if (others.calls > 0) row(fmt::format("{} others", profile.lines.size() - shown), others.calls, others.ms);
  row(device.is_cpu() ? "outside of operators" : "between kernels", 0, profile.idle_ms);
  return table.text();
}

Command bench_command() {
  return {"bench", "Time optimizers, their kernels and training steps", "prism bench optimizer --model 22m",
          [](CLI::App& app) {
            return attach_commands(app, {bench_optimizer_command(), bench_kernels_command(), bench_train_command(),
                                         bench_scaling_command()});
          }};
}

}  // namespace prism::cli
