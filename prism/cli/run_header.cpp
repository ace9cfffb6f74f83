#include "prism/cli/run_header.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "prism/cli/numbers.h"
#include "prism/io/config_toml.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/run_page.h"

namespace prism::cli {
namespace {

constexpr double kDay = 86400;

std::string model_line(const io::Config& config, const train::Estimate& estimate) {
  const auto init = config.string("model.init");
  return fmt::format("model   {}, {} parameters, {} in hidden matrices",
                     init.empty() ? config.string("model.preset") : init, grouped(estimate.model.parameters()),
                     grouped(estimate.model.matrix_parameters()));
}

std::string device_line(const io::Config& config) {
  const auto machine = train::machine(train::device_of(config.string("run.device")));
  const auto device = machine.at("device").get<std::string>();
  if (machine.contains("gpu")) return fmt::format("device  {}, {}", device, machine.at("gpu").get<std::string>());
  const int threads = at::get_num_threads();
  return fmt::format("device  {}, {}, {}", device, io::counted(threads, "thread"),
                     machine.at("cpu").get<std::string>());
}

std::string rates_line(const io::Config& config) {
  const auto pair = train::optimizer_options(config);
  const auto schedule = train::schedule(config);
  auto text = fmt::format("rates   {} {:g}, AdamW {:g} for the rest, {}",
                          train::optimizer_label(config.string("optimizer.name")), pair.matrices->lr(), pair.rest->lr(),
                          config.string("schedule.kind"));
  if (schedule.warmup > 0) text += fmt::format(" after {} of warm-up", io::counted(schedule.warmup, "step"));
  return text;
}

std::string epochs_text(double epochs) {
  return epochs < 0.095 ? fmt::format("{:.1g}", epochs) : fmt::format("{:.{}f}", epochs, epochs < 9.95 ? 1 : 0);
}

std::string steps_line(const io::Config& config, const train::DatasetSize& data, const train::Estimate& estimate) {
  return fmt::format("steps   {} of {} × {} tokens: {} tokens, {}{} epochs", grouped(config.integer("train.steps")),
                     config.integer("train.batch"), grouped(config.integer("train.context")), grouped(estimate.tokens),
                     data.counted ? "" : "about ", epochs_text(estimate.epochs));
}

}  // namespace

std::vector<std::string> run_header(const io::Config& config, const train::DatasetSize& data,
                                    const train::Estimate& estimate, size_t runs) {
  const auto& memory = estimate.memory;
  std::vector<std::string> lines = {model_line(config, estimate), device_line(config)};
  if (runs == 1) lines.push_back(rates_line(config));
  lines.push_back(steps_line(config, data, estimate));
  lines.push_back(fmt::format("needs   about {}{}, {} of memory, {} of disk",
                              in_time(estimate.seconds * static_cast<double>(runs)),
                              runs == 1 ? "" : fmt::format(" for {}", io::counted(static_cast<int64_t>(runs), "run")),
                              in_bytes(memory.total()), in_bytes(estimate.disk_bytes * static_cast<double>(runs))));
  return lines;
}

std::vector<std::string> run_warnings(const io::Config& config, const train::Estimate& estimate, size_t runs) {
  std::vector<std::string> lines;
  if (const double seconds = estimate.seconds * static_cast<double>(runs); seconds > kDay) {
    const bool cpu = train::device_of(config.string("run.device")).is_cpu();
    lines.push_back(
        fmt::format("warning: this will take about {} on this machine; a smaller model.preset{} or fewer "
                    "train.steps makes it shorter",
                    in_time(seconds), cpu ? ", a GPU" : ""));
  }
  if (estimate.memory.total() > estimate.memory_there) {
    lines.push_back(
        fmt::format("warning: this needs about {} of memory and there are {}; a larger train.accumulate or "
                    "model.recompute = true makes it less",
                    in_bytes(estimate.memory.total()), in_bytes(estimate.memory_there)));
  }
  return lines;
}

std::string annotated_toml(const io::Config& complete, const io::Config& given) {
  constexpr size_t kComment = 44;
  std::string text;
  for (const auto& section : complete.table().sections()) {
    if (section == "compare") continue;
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const auto& key : complete.table().keys()) {
      const auto& name = key.name();
      if (io::section_of(name) != section || !complete.has(name)) continue;
      const auto line = fmt::format("{} = {}", name.substr(section.size() + 1), io::toml_text(complete.value(name)));
      auto origin = given.origin(name);
      if (origin.starts_with("--set ")) origin = "--set";
      const bool was_auto = given.is(name, "auto") && !complete.is(name, "auto");
      text += fmt::format("{:<{}} # {}{}\n", line, kComment, origin, was_auto ? ", from \"auto\"" : "");
    }
  }
  return text;
}

}  // namespace prism::cli
