#include "prism/reproduce/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "prism/io/error.h"
#include "prism/io/spelling.h"
#include "prism/train/config.h"

namespace prism::reproduce {
namespace {

constexpr std::string_view kScales = "scales/", kToml = ".toml", kPaper = "paper";
constexpr const char* kAll = "all";

// Returns a configuration with the keys of training, comparing and experiments.
io::Config make_config() {
  using Key = io::ConfigKey;
  auto keys = train::config_table().keys();
  const auto none = nlohmann::json::array();
  keys.insert(
      keys.end(),
      {
          Key::string("experiment.title", "", "Heading of the experiment."),
          Key::string("experiment.question", "", "The question it answers, in one sentence."),
          Key::strings("experiment.claims", none, "Claims of the paper, each with the inequality that decides it."),
          Key::strings("experiment.columns", none, "Measures in the table besides losses."),
          Key::strings("experiment.scales", none, "Scales it can be run at; empty: all."),
          Key::integer("experiment.spectra", 0, "Number of times a run records its spectra.").at_least(0),
          Key::real("experiment.tokens_per_s", 1e6, "Assumed training speed, for estimates of time.").above(0),
          Key::strings("experiment.paper", none, "The paper's number at each rate, lowest rate first."),
          Key::string("experiment.paper_measure", "loss", "The measure to show beside the paper's numbers."),
          Key::string("experiment.paper_label", "final loss", "Name of the paper's numbers."),
      });
  return io::Config(io::ConfigTable(std::move(keys), "compare.override"));
}

void read(io::Config& config, const std::string& name) {
  for (const auto& file : experiment_files()) {
    if (file.name == name + std::string(kToml)) config.read_toml(file.bytes, fmt::format("experiments/{}", file.name));
  }
}

// Sets a key that has an option of its own. Throws prism::Error if --set sets it, too.
void take(io::Config& config, const char* key, const nlohmann::json& value, const char* option) {
  config.refuse_set(key, fmt::format("has no effect on an experiment; use {} instead", option));
  config.assign(key, value, option);
}

io::Config configuration(const std::string& name, const Choices& choices) {
  auto config = make_config();
  read(config, std::string(kPaper));
  read(config, std::string(kScales) + choices.scale);
  read(config, name);
  for (const auto& setting : choices.settings) config.set(setting);
  if (const auto records = config.integer("experiment.spectra"); records > 0)
    take(config, "metrics.spectra_every", std::max<int64_t>(1, config.integer("train.steps") / records),
         "experiment.spectra");
  take(config, "run.out", name, "--pool");
  take(config, "run.device", choices.device, "--device");
  take(config, "data.path", choices.data.empty() ? std::vector<std::string>{"none"} : choices.data, "--data");
  if (!choices.held_out.empty()) take(config, "data.held_out_path", choices.held_out, "--held-out");
  if (!choices.tokenizer.empty()) take(config, "data.tokenizer", choices.tokenizer, "--tokenizer");
  return config;
}

bool is_for(const io::Config& config, const std::string& scale) {
  const auto scales = config.strings("experiment.scales");
  return scales.empty() || std::find(scales.begin(), scales.end(), scale) != scales.end();
}

Experiment make_experiment(const std::string& name, const io::Config& config) {
  Experiment experiment{
      .name = name,
      .title = config.string("experiment.title"),
      .question = config.string("experiment.question"),
      .plan = compare::Plan(config),
      .paper_measure = &measure(config.string("experiment.paper_measure"), config.where("experiment.paper_measure")),
      .paper_label = config.string("experiment.paper_label")};
  for (const auto& claim : config.strings("experiment.claims"))
    experiment.claims.push_back(parse_claim(claim, experiment.plan));
  for (const auto& column : config.strings("experiment.columns"))
    experiment.columns.push_back(&measure(column, config.where("experiment.columns")));
  for (const auto& contender : experiment.plan.contenders()) {
    const auto paper = contender.config.strings("experiment.paper");
    if (paper.empty() || paper.size() == contender.rates.size()) continue;
    throw Error(fmt::format("{}: expected a number for each of the {} rates, got {}",
                            contender.config.where("experiment.paper"), contender.rates.size(), paper.size()));
  }
  return experiment;
}

[[noreturn]] void refuse_name(const char* what, const std::string& name, std::vector<std::string> known) {
  const auto nearest = io::nearest_word(name, known);
  throw Error(fmt::format("{} ({}), got \"{}\"{}", what, fmt::join(known, ", "), name,
                          nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
}

}  // namespace

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const auto& embedded : experiment_files()) {
    const auto name = embedded.name.substr(0, embedded.name.size() - kToml.size());
    if (name != kPaper && !name.starts_with(kScales)) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> scale_names() {
  std::vector<std::string> names;
  for (const auto& embedded : experiment_files()) {
    if (embedded.name.starts_with(kScales))
      names.emplace_back(embedded.name.substr(kScales.size(), embedded.name.size() - kScales.size() - kToml.size()));
  }
  return names;
}

std::vector<Experiment> make_experiments(const std::vector<std::string>& names, const Choices& choices) {
  const auto known = experiment_names(), scales = scale_names();
  if (std::find(scales.begin(), scales.end(), choices.scale) == scales.end())
    refuse_name("--scale: expected a scale", choices.scale, scales);
  std::vector<Experiment> experiments;
  std::set<std::string> seen;
  for (const auto& name : names) {
    bool found = false, fits = false;
    std::vector<std::string> other_scales;  // scales of an experiment that lacks this one
    for (const auto& candidate : known) {
      if (name != kAll && candidate != name && !candidate.starts_with(name + "/")) continue;
      found = true;
      const auto config = configuration(candidate, choices);
      if (!is_for(config, choices.scale)) {
        other_scales = config.strings("experiment.scales");
        continue;
      }
      fits = true;
      if (!seen.insert(candidate).second) continue;
      experiments.push_back(make_experiment(candidate, config));
    }
    if (!found) {
      auto all = known;
      all.emplace_back(kAll);
      refuse_name("expected an experiment", name, all);
    }
    if (!fits) {
      throw Error(
          fmt::format("--scale: expected {} for {}, got {}", fmt::join(other_scales, " or "), name, choices.scale));
    }
  }
  return experiments;
}

double nominal_tokens_per_s(const Experiment& experiment) {
  return experiment.plan.config().real("experiment.tokens_per_s");
}

}  // namespace prism::reproduce
