#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>

#include "prism/bench/kernels.h"
#include "prism/bench/library.h"
#include "prism/bench/timing.h"
#include "prism/cli/bench.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/cuda/device.h"
#include "prism/io/error.h"
#include "prism/report/text_table.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

constexpr size_t kMostOperators = 30;

struct KernelsOptions : BenchOptions {
  std::string optimizer = "prism_minimax9";
  double library_s = 0;  // seconds of each of the library's products; 0: not measured
  bool portable = false;
};

std::string roofline_table(const bench::Roofline& roofline, const std::optional<bench::Peak>& peak) {
  using enum report::Align;
  std::vector<report::TextTable::Column> columns = {{"kernel"}, {"ms", Right}, {"of step", Right}};
  if (peak) columns.push_back({"bound by"});
  columns.push_back({"TFLOP/s", Right});
  const bool library = std::ranges::any_of(roofline.kernels, [](const auto& k) { return k.library_flops.has_value(); });
  if (library) columns.push_back({"cuBLAS", Right});
  columns.push_back({"GB/s", Right});
  if (peak) columns.push_back({"of bound", Right});
  report::TextTable table(columns);
  const auto percent = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
  const auto rate = [](double work, double ms, double unit) { return work > 0 ? in_rate(work / ms / unit) : ""; };
  for (const auto& kernel : roofline.kernels) {
    std::vector<std::string> cells = {fitted(kernel.label, 26), in_ms(kernel.ms),
                                      percent(kernel.ms / roofline.total_ms)};
    if (peak) cells.push_back(name_of(kernel.bound(*peak)));
    cells.push_back(rate(kernel.work.flop, kernel.ms, 1e9));
    if (library) cells.push_back(kernel.library_flops ? in_rate(*kernel.library_flops / 1e12) : "");
    cells.push_back(rate(kernel.work.bytes, kernel.ms, 1e6));
    if (peak) cells.push_back(kernel.work.bytes > 0 ? percent(kernel.share_of_bound(*peak)) : "");
    table.row(cells);
  }
  std::vector<std::string> last(columns.size());
  last[0] = "between kernels", last[1] = in_ms(roofline.idle_ms),
  last[2] = percent(roofline.idle_ms / roofline.total_ms);
  table.row(last);
  return table.text();
}

nlohmann::json figures_of(const bench::Roofline& roofline, const std::optional<bench::Peak>& peak) {
  auto rows = nlohmann::json::array();
  for (const auto& kernel : roofline.kernels) {
    nlohmann::json row = {{"kernel", kernel.label}, {"launches", kernel.launches}, {"ms", kernel.ms}};
    if (kernel.work.flop > 0) row["tflops"] = kernel.work.flop / kernel.ms / 1e9;
    if (kernel.library_flops) row["library_tflops"] = *kernel.library_flops / 1e12;
    if (kernel.work.bytes > 0) row["gb_per_s"] = kernel.work.bytes / kernel.ms / 1e6;
    if (peak) row["bound"] = name_of(kernel.bound(*peak));
    if (peak && kernel.work.bytes > 0) row["share_of_bound"] = kernel.share_of_bound(*peak);
    rows.push_back(row);
  }
  rows.push_back({{"kernel", "between kernels"}, {"ms", roofline.idle_ms}});
  return rows;
}

// Measures the library's products and adds them to the table. Returns the sentence below it.
std::string compare_with_library(const KernelsOptions& options, const bench::Entrant& entrant,
                                 const std::vector<bench::Shape>& shapes, at::Device device,
                                 const std::vector<bench::Kernel>& kernels, bench::Roofline& roofline) {
  if (options.library_s == 0) return "";
  const auto rates = bench::library_rates(*entrant.make_options(), shapes, device, options.library_s);
  bench::release_cache(device);
  bench::add_library_rates(roofline, kernels, rates);
  return fmt::format("with every product at cuBLAS's rate, symmetric ones at half the cost: {} ms\n",
                     in_ms(bench::library_ms(roofline)));
}

nlohmann::json figures_of(const bench::Profile& profile) {
  auto rows = nlohmann::json::array();
  for (const auto& line : profile.lines)
    rows.push_back({{"operator", line.name}, {"calls", line.calls}, {"ms", line.ms}});
  return rows;
}

int bench_kernels(const KernelsOptions& options) {
  const auto device = train::device_of(options.device, "--device");
  if (options.library_s > 0 && !device.is_cuda()) throw Error("--cublas: expected a CUDA device, got the CPU");
  if (options.portable && !device.is_cuda()) throw Error("--portable: expected a CUDA device, got the CPU");
  if (options.portable) cuda::use_portable_products();
  auto results = options.results(device);
  const auto& entrant = bench::entrant(options.optimizer);
  const auto name = bench::device_name(device);
  const auto peak = bench::peak_of(name);
  fmt::print("{}, torch {}\none step of {}{}, gradients given, float32 weights\n", name, TORCH_VERSION, entrant.name,
             options.portable ? " with the portable kernel" : "");
  for (const auto& model : options.models_for(device)) {
    const auto set = bench::shape_set(model);
    const auto& shapes = entrant.rest ? set.rest : set.matrices;
    ProgressLine line;
    line.update(model);
    const auto spans = bench::profile_step(entrant, bench::make_parameters(shapes, device));
    bench::release_cache(device);
    line.clear();
    nlohmann::json figures;
    if (device.is_cpu()) {
      const auto profile = bench::summarize(device, spans);
      fmt::print("\n{}; {} ms\n{}", title_of(set), in_ms(profile.total_ms),
                 profile_table(profile, device, kMostOperators));
      figures = figures_of(profile);
    } else {
      const auto known = bench::step_kernels(*entrant.make_options(), shapes).value_or(std::vector<bench::Kernel>{});
      std::vector<std::string> names;
      for (const auto& span : spans) names.push_back(span.name);
      const auto kernels = bench::as_launched(known, names);
      auto roofline = bench::roofline(spans, kernels);
      const auto sentence = compare_with_library(options, entrant, shapes, device, kernels, roofline);
      fmt::print("\n{}; {} ms, {} kernels\n{}{}", title_of(set), in_ms(roofline.total_ms), roofline.launches,
                 roofline_table(roofline, peak), sentence);
      figures = figures_of(roofline, peak);
    }
    std::fflush(stdout);
    const auto key = entrant.name + (options.portable ? "_portable" : "");
    if (results) results->merge({{"kernels", {{model, {{key, figures}}}}}});
  }
  return 0;
}

void add_options(CLI::App& app, KernelsOptions& options) {
  options.attach_models(app);
  add_name(app, "--optimizer", options.optimizer, optimizer_names(),
           "Optimizer to profile; names as in prism bench\noptimizer");
  add_device(app, options.device);
  add_real(app, "--cublas", options.library_s,
           "Also run each product in cuBLAS for this many\nseconds, to compare its rate with ours", 0, 60);
  app.add_flag("--portable", options.portable,
               "Multiply by the kernel that runs on every GPU since\ncompute capability 8.0");
  options.attach_json(app);
}

}  // namespace

Command bench_kernels_command() {
  return make_command("kernels", "Profile the kernels of one optimizer step",
                      "prism bench kernels --model 1b\nprism bench kernels --optimizer muon --device cpu", add_options,
                      bench_kernels);
}

}  // namespace prism::cli
