#include <fmt/format.h>

#include "prism/bench/scaling.h"
#include "prism/bench/timing.h"
#include "prism/cli/bench.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/report/text_table.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

struct ScalingOptions : BenchOptions {
  std::vector<int64_t> ranks = {8, 64, 512};
  double link = 50, latency = 10;  // GB/s, µs
  std::vector<double> tflops;
  double memory = 0;  // GB/s
};

bench::Rates rates_of(const ScalingOptions& options) {
  if (options.tflops.empty() != (options.memory == 0))
    throw Error("--tflops and --memory: expected both or neither, for a device that was measured elsewhere");
  bench::Rates rates;
  if (!options.tflops.empty()) {
    for (size_t i = 0; i < rates.flops.size(); ++i) rates.flops[i] = 1e12 * options.tflops[i];
    rates.bytes_per_s = 1e9 * options.memory;
    fmt::print("rates as given");
  } else {
    const auto device = train::device_of(options.device, "--device");
    ProgressLine line;
    line.doing("measuring the rates");
    rates = bench::measure_rates(device);
    line.clear();
    fmt::print("rates of {}", bench::device_name(device));
  }
  fmt::print(
      ": {:.3g}, {:.3g}, {:.3g}, {:.3g} TFLOP/s with 1, 2, 3, 8 matrices, {:.3g} GB/s; link {:g} GB/s, {:g} µs\n",
      rates.flops[0] / 1e12, rates.flops[1] / 1e12, rates.flops[2] / 1e12, rates.flops[3] / 1e12,
      rates.bytes_per_s / 1e9, options.link, options.latency);
  return rates;
}

int bench_scaling(const ScalingOptions& options) {
  using enum report::Align;
  const auto rates = rates_of(options);
  const bench::Link link{1e9 * options.link, 1e-6 * options.latency};
  for (const auto& model : options.models.empty() ? std::vector<std::string>{"1b", "7b"} : options.models) {
    const auto set = bench::shape_set(model);
    report::TextTable table({{"ranks", Right},
                             {"scheme"},
                             {"work ms", Right},
                             {"balance", Right},
                             {"sent MB", Right},
                             {"link ms", Right},
                             {"both ms", Right},
                             {"state MB", Right}});
    for (const auto ranks : options.ranks) {
      for (const auto scheme : bench::kSchemes) {
        const auto line = bench::scaling(set, scheme, ranks, rates, link);
        table.row({grouped(ranks), name_of(scheme), in_ms(1e3 * line.work_s),
                   fmt::format("{:.0f} %", 100 * line.balance), in_rate(line.traffic_bytes / 1e6),
                   in_ms(1e3 * line.link_s), in_ms(1e3 * (line.work_s + line.link_s)),
                   in_rate(line.state_bytes / 1e6)});
      }
    }
    fmt::print("\n{}\n{}", title_of(set), table.text());
  }
  return 0;
}

void add_options(CLI::App& app, ScalingOptions& options) {
  options.attach_models(app);
  app.add_option("--ranks", options.ranks, "Numbers of processes (default 8 64 512)")
      ->type_name("NUMBER")
      ->delimiter(',')
      ->expected(1, -1)
      ->check([](const std::string& text) {
        return text.find_first_not_of("0123456789") == std::string::npos && text != "0" && text.size() < 7
                   ? ""
                   : fmt::format("expected an integer from 1 to 999999, got '{}'", text);
      });
  add_real(app, "--link", options.link, "GB/s out of each process", 1e-3, 1e6);
  add_real(app, "--latency", options.latency, "µs of one message", 0, 1e6);
  app.add_option("--tflops", options.tflops,
                 "TFLOP/s with 1, 2, 3 and 8 matrices, of a device\nthat you measured earlier")
      ->type_name("X")
      ->delimiter(',')
      ->expected(4)
      ->check(CLI::PositiveNumber.description(""));
  add_real(app, "--memory", options.memory, "GB/s of that device's memory", 0, 1e6)->default_str("");
  add_device(app, options.device);
}

}  // namespace

Command bench_scaling_command() {
  return make_command("scaling", "Model a step on many processes",
                      "prism bench scaling --model 1b 7b --ranks 8 64 512 --link 50", add_options, bench_scaling);
}

}  // namespace prism::cli
