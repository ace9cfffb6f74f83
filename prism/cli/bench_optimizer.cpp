#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>

#include "prism/bench/library.h"
#include "prism/bench/optimizers.h"
#include "prism/bench/peers.h"
#include "prism/bench/results.h"
#include "prism/bench/timing.h"
#include "prism/cli/bench.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/io/spelling.h"
#include "prism/report/text_table.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

struct OptimizerOptions : BenchOptions {
  std::vector<std::string> only;
  std::string peers, page;
  int64_t repeats = 0;  // 0: the device's default
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void check_names(const std::vector<std::string>& only, const std::vector<std::string>& peers) {
  auto known = optimizer_names();
  known.insert(known.end(), peers.begin(), peers.end());
  for (const auto& name : only) {
    if (contains(known, name)) continue;
    const auto nearest = io::nearest_word(name, known);
    throw Error(fmt::format("--only: unknown optimizer '{}'{}; expected some of {}", name,
                            nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                            fmt::join(known, ", ")));
  }
}

std::vector<bench::StepTime> measure_ours(const bench::ShapeSet& set, at::Device device, int64_t repeats,
                                          const std::vector<std::string>& only, ProgressLine& line) {
  const auto matrices = bench::make_parameters(set.matrices, device);
  const auto rest = bench::make_parameters(set.rest, device);
  std::vector<bench::StepTime> rows;
  for (const auto& entrant : bench::entrants()) {
    if (only.empty() ? !entrant.usual : !contains(only, entrant.name)) continue;
    const auto& parameters = entrant.rest ? rest : matrices;
    if (parameters.empty()) continue;
    line.update(fmt::format("{}  {}", set.name, entrant.name));
    rows.push_back(bench::measure(entrant, parameters, repeats));
    bench::release_cache(device);
  }
  return rows;
}

std::string step_table(const std::vector<bench::StepTime>& rows, at::Device device,
                       const std::optional<bench::Peak>& peak) {
  using enum report::Align;
  const bool cpu = device.is_cpu();
  std::vector<report::TextTable::Column> columns = {{"optimizer"}, {cpu ? "ms" : "eager ms", Right}};
  if (!cpu) columns.push_back({"captured", Right});
  columns.push_back({cpu ? "GFLOP/s" : "TFLOP/s", Right});
  if (peak) columns.push_back({"of floor", Right});
  columns.push_back({"GB/s", Right});
  columns.push_back({"MiB", Right});
  report::TextTable table(columns);
  for (const auto& row : rows) {
    const auto figures = row.to_json(peak);
    const auto rate = [&](const char* key, double factor) {
      return figures.contains(key) ? in_rate(factor * figures.at(key).get<double>()) : "";
    };
    std::vector<std::string> cells = {row.name, in_ms(row.eager_ms)};
    if (!cpu) cells.push_back(row.captured_ms ? in_ms(*row.captured_ms) : "-");
    cells.push_back(rate("tflops", cpu ? 1e3 : 1));
    if (peak) cells.push_back(row.work ? fmt::format("{:.0f} %", 100 * peak->floor_ms(*row.work) / row.best_ms()) : "");
    cells.push_back(rate("gb_per_s", 1));
    cells.push_back(in_rate(row.memory_mib));
    table.row(cells);
  }
  return table.text();
}

// Prints the time of our optimizer as a multiple of a peer's. Returns false if one of the two was not measured.
bool print_ratio(const std::vector<bench::StepTime>& rows, const char* ours, const char* theirs) {
  const auto our = std::ranges::find(rows, ours, &bench::StepTime::name);
  const auto their = std::ranges::find(rows, theirs, &bench::StepTime::name);
  if (our == rows.end() || their == rows.end()) return false;
  fmt::print("{} takes {:.2f} × the time of {}\n", ours, our->best_ms() / their->best_ms(), theirs);
  return true;
}

// Prints the ratios that count on a CPU. PRISM multiplies in float32 there and torch's Muon in bfloat16, so their ratio
// depends on the rates of both: prints them beside it and returns them; nothing if one of the two was not measured.
nlohmann::json compare_on_host(const std::vector<bench::StepTime>& rows, int64_t repeats) {
  print_ratio(rows, "adamw", "torch_adamw_fused");
  if (!print_ratio(rows, "prism_minimax9", "torch_muon")) return nlohmann::json::object();
  const auto rates = bench::host_rates(repeats);
  fmt::print(
      "products of 512×512 run at {} GFLOP/s in bfloat16, {} in torch's float32 ({:.2f} ×), {} in ours ({:.2f} ×)\n",
      in_rate(rates.bfloat16 / 1e9), in_rate(rates.float32 / 1e9), rates.float32 / rates.bfloat16,
      in_rate(rates.ours / 1e9), rates.ours / rates.bfloat16);
  return {{"products_gflops",
           {{"ours", rates.ours / 1e9}, {"float32", rates.float32 / 1e9}, {"bfloat16", rates.bfloat16 / 1e9}}}};
}

int bench_optimizer(const OptimizerOptions& options) {
  const auto device = train::device_of(options.device, "--device");
  const int64_t repeats = options.repeats > 0 ? options.repeats : device.is_cpu() ? 5 : 30;
  auto results = options.results(device);
  if (!options.page.empty()) check_writable(options.page);
  std::optional<bench::Peers> peers;
  if (!options.peers.empty()) peers.emplace(options.peers);
  check_names(options.only, peers ? peers->names() : std::vector<std::string>{});

  const auto name = bench::device_name(device);
  const auto peak = bench::peak_of(name);
  fmt::print("{}, torch {}\nmedians of {}, gradients given, float32 weights\n", name, TORCH_VERSION,
             io::counted(repeats, "step"));
  std::vector<bench::PageModel> pages;
  for (const auto& model : options.models_for(device)) {
    const auto set = bench::shape_set(model);
    ProgressLine line;
    auto rows = measure_ours(set, device, repeats, options.only, line);
    bench::release_cache(device);
    std::vector<std::string> missing;
    if (peers) {
      line.update(fmt::format("{}  peers", model));
      const auto theirs = peers->measure(set, device, repeats, options.only, [&](const auto& peer, const auto& why) {
        missing.push_back(fmt::format("{} ({})", peer, why));
      });
      rows.insert(rows.end(), theirs.begin(), theirs.end());
    }
    line.clear();
    fmt::print("\n{}\n{}", title_of(set), step_table(rows, device, peak));
    if (device.is_cpu()) {
      const auto figures = compare_on_host(rows, repeats);
      if (results) results->merge(figures);
    }
    if (!missing.empty()) fmt::print("not measured: {}\n", fmt::join(missing, ", "));
    std::fflush(stdout);
    if (results) results->merge(bench::step_figures(model, rows, peak));
    pages.push_back({model, title_of(set).substr(model.size() + 2), rows});
    if (!options.page.empty()) bench::write_page(options.page, name, pages);
  }
  return 0;
}

void add_options(CLI::App& app, OptimizerOptions& options) {
  options.attach_models(app);
  add_device(app, options.device);
  app.add_option("--only", options.only, "Measure only these; more optimizers are available\nhere (soap, ssd, …)")
      ->type_name("NAME")
      ->delimiter(',')
      ->expected(1, -1);
  add_integer(app, "--repeats", options.repeats,
              "Steps to take the median of, at least one cycle\nof those whose costs differ\n(default 5; on a GPU 30)",
              1)
      ->default_str("");
  app.add_option("--peers", options.peers, "Also measure the optimizers of this program\n(bench/peers.py sets it)")
      ->type_name("COMMAND");
  options.attach_json(app);
  app.add_option("--page", options.page, "Write a bar chart as an HTML page")->type_name("FILE.html");
}

}  // namespace

Command bench_optimizer_command() {
  return make_command("optimizer", "Time optimizer steps over a model's hidden matrices",
                      "prism bench optimizer --model 22m --json results.json --page results.html\n"
                      "python bench/peers.py --model 22m 1b      # with torch's and other optimizers",
                      add_options, bench_optimizer);
}

}  // namespace prism::cli
