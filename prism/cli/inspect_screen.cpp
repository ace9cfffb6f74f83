#include "prism/cli/inspect_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "prism/io/error.h"
#include "prism/report/text_plot.h"
#include "prism/report/text_table.h"

namespace prism::cli {
namespace {

using nlohmann::json;
using report::Align;
using report::TextSeries;

std::vector<double> numbers(const json& list) {  // what is not finite was written as null
  std::vector<double> values;
  for (const auto& value : list) values.push_back(value.is_number() ? value.get<double>() : NAN);
  return values;
}

double quantile(std::vector<double> values, double q) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return NAN;
  const auto place = values.begin() + std::llround(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

std::string short_name(std::string name) {
  if (name.starts_with("model.")) name = name.substr(6);
  if (name.ends_with(".weight")) name = name.substr(0, name.size() - 7);
  return name;
}

std::string three_quantiles(const std::vector<double>& values) {
  return fmt::format("{:8.3g} {:8.3g} {:8.3g}", quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9));
}

std::string number_of(const json& value) {
  return value.is_number() ? fmt::format("{:.4g}", value.get<double>()) : "several";
}

report::TextPlotOptions plot_options(const Terminal& terminal, const char* x, const char* y) {
  report::TextPlotOptions options;
  options.width = std::clamp<int64_t>(terminal.width - 1, 40, 100);
  options.height = 10;
  options.x_label = x;
  options.y_label = y;
  options.color = terminal.color;
  return options;
}

std::string loss_plot(const std::vector<json>& metrics, const Terminal& terminal) {
  TextSeries train{"training loss", {}, {}}, val{"held-out loss", {}, {}};
  for (const auto& line : metrics) {
    train.x.push_back(line.at("step"));
    train.y.push_back(line.at("loss").is_number() ? line.at("loss").get<double>() : NAN);
    if (!line.contains("val_loss") || !line.at("val_loss").is_number()) continue;
    val.x.push_back(line.at("step"));
    val.y.push_back(line.at("val_loss"));
  }
  std::vector<TextSeries> series = {train};
  if (!val.x.empty()) series.push_back(val);
  return report::line_plot(series, plot_options(terminal, "step", "loss"));
}

// Median over all matrices and directions, at every recorded step.
std::string course_plot(const std::vector<json>& spectra, const Terminal& terminal) {
  std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> steps;
  for (const auto& line : spectra) {
    auto& [snr, gain] = steps[line.at("step")];
    for (const double value : numbers(line.at("snr"))) snr.push_back(value);
    for (const double value : numbers(line.at("gain"))) gain.push_back(value);
  }
  if (steps.size() < 2) return "";
  TextSeries snr{"median SNR", {}, {}}, gain{"median gain", {}, {}};
  for (const auto& [step, values] : steps) {
    snr.x.push_back(static_cast<double>(step)), gain.x.push_back(static_cast<double>(step));
    snr.y.push_back(quantile(values.first, 0.5)), gain.y.push_back(quantile(values.second, 0.5));
  }
  return "\n" + report::line_plot({snr, gain}, plot_options(terminal, "step", ""));
}

std::string spectra_table(const std::vector<json>& lines) {
  report::TextTable table({{"matrix"},
                           {"SNR 10 %     50 %     90 %", Align::kRight},
                           {"gain 10 %     50 %     90 %", Align::kRight},
                           {"SNR by direction"},
                           {"‖W‖", Align::kRight},
                           {"‖O‖", Align::kRight}});
  for (const auto& line : lines) {
    if (!line.at("weight_norm").is_number()) continue;
    const auto snr = numbers(line.at("snr")), gain = numbers(line.at("gain"));
    table.row({short_name(line.at("name")), three_quantiles(snr), three_quantiles(gain), report::spark_line(snr, 16),
               number_of(line.at("weight_norm")), number_of(line.at("update_norm"))});
  }
  return table.text();
}

const json* find_matrix(const std::vector<json>& lines, const std::string& part) {
  for (const auto& line : lines) {
    if (line.at("name").get<std::string>().find(part) != std::string::npos) return &line;
  }
  return nullptr;
}

[[noreturn]] void refuse_matrix(const std::string& part, const std::vector<std::string>& names) {
  throw Error(fmt::format("--matrix: no recorded matrix has \"{}\" in its name{}", part,
                          names.empty() ? "; nothing is recorded" : ", such as " + names.front()));
}

std::string matrix_plots(const std::vector<json>& lines, const std::string& part, const Terminal& terminal) {
  const auto* line = find_matrix(lines, part);
  if (line == nullptr)
    refuse_matrix(part,
                  lines.empty() ? std::vector<std::string>{} : std::vector<std::string>{lines.front().at("name")});
  auto snr = plot_options(terminal, "direction", "SNR"), gain = plot_options(terminal, "direction", "gain"),
       values = plot_options(terminal, "index", "σ of T");
  snr.log_y = values.log_y = true;
  return fmt::format(
      "\n{}, step {}\n{}\n{}\n{}", line->at("name").get<std::string>(), line->at("step").get<int64_t>(),
      report::line_plot({{"SNR", {}, numbers(line->at("snr"))}}, snr),
      report::line_plot({{"gain", {}, numbers(line->at("gain"))}, {"theory", {}, numbers(line->at("theory"))}}, gain),
      report::line_plot({{"σ", {}, numbers(line->at("singular_values"))}}, values));
}

std::vector<json> last_record(const std::vector<json>& spectra) {
  std::vector<json> lines;
  for (const auto& line : spectra) {
    if (line.at("step") == spectra.back().at("step")) lines.push_back(line);
  }
  return lines;
}

std::string momentum_text(const std::vector<double>& values) {
  if (values.empty()) return "";
  return fmt::format("{:.3g}  {:.3g}", values.front(), values.back());
}

double stable_rank(const std::vector<double>& values) {  // ‖W‖_F²/‖W‖₂²
  double squares = 0;
  for (const double value : values) squares += value * value;
  return values.empty() || values.front() == 0 ? 0 : squares / (values.front() * values.front());
}

}  // namespace

std::string screen_of(const RunView& view, const std::string& matrix, const Terminal& terminal) {
  if (view.metrics.empty()) return fmt::format("{}: no step yet\n", view.path);
  const auto& last = view.metrics.back();
  auto text = fmt::format("{}  step {}  loss {}\n\n{}", view.path, last.at("step").get<int64_t>(),
                          number_of(last.at("loss")), loss_plot(view.metrics, terminal));
  if (view.spectra.empty()) {
    if (!matrix.empty()) refuse_matrix(matrix, {});
    return text + "\nNo spectra are recorded; metrics.spectra_every sets how often a run does.\n";
  }
  const auto record = last_record(view.spectra);
  text += course_plot(view.spectra, terminal);
  if (!matrix.empty()) return text + matrix_plots(record, matrix, terminal);
  return text +
         fmt::format("\nspectra at step {}\n{}", record.front().at("step").get<int64_t>(), spectra_table(record));
}

std::string screen_of(const CheckpointView& view, const std::string& matrix, const Terminal& terminal) {
  report::TextTable table({{"matrix"},
                           {"shape", Align::kRight},
                           {"weights σ max  min", Align::kRight},
                           {"stable rank", Align::kRight},
                           {"spectrum"},
                           {"momentum σ max  min", Align::kRight},
                           {"spectrum"}});
  std::vector<std::string> names;
  std::string plots;
  for (const auto& m : view.matrices) {
    names.push_back(m.name);
    table.row({short_name(m.name), fmt::format("{} × {}", m.shape[0], m.shape[1]), momentum_text(m.weight),
               fmt::format("{:.1f}", stable_rank(m.weight)), report::spark_line(m.weight, 12),
               momentum_text(m.momentum), m.momentum.empty() ? "" : report::spark_line(m.momentum, 12)});
    if (matrix.empty() || !plots.empty() || m.name.find(matrix) == std::string::npos) continue;
    auto options = plot_options(terminal, "index", "σ");
    options.log_y = true;
    plots = fmt::format("\n{}\n{}", m.name,
                        report::line_plot({{"weights", {}, m.weight}, {"momentum", {}, m.momentum}}, options));
  }
  if (!matrix.empty() && plots.empty()) refuse_matrix(matrix, names);
  auto text = fmt::format("{}  step {}\n\n{}{}", view.path, view.step, table.text(), plots);
  if (!view.spectra.empty()) text += "\nwith the gradient of one batch\n" + spectra_table(view.spectra);
  if (!view.spectra.empty() && !matrix.empty()) text += matrix_plots(view.spectra, matrix, terminal);
  return text;
}

json checkpoint_document(const CheckpointView& view) {
  json records = json::array();
  for (const auto& m : view.matrices) {
    json record = {{"step", view.step}, {"matrix", m.name}, {"weight_singular_values", m.weight}};
    if (!m.momentum.empty()) record["singular_values"] = m.momentum;
    if (const auto* line = find_matrix(view.spectra, m.name)) {
      for (const char* key : {"snr", "gain", "theory", "singular_values", "weight_norm", "update_norm"})
        record[key] = line->at(key);
    }
    records.push_back(std::move(record));
  }
  return {{"kind", "inspect"},
          {"title", view.path},
          {"summary",
           {{{"text", fmt::format("Spectra of the {} hidden matrices of {}.", view.matrices.size(), view.path)},
             {"tone", "headline"}}}},
          {"optimizers", {{{"id", "checkpoint"}, {"label", "checkpoint"}}}},
          {"runs",
           {{{"optimizer", "checkpoint"},
             {"lr", 0},
             {"seed", 0},
             {"status", "finished"},
             {"best", true},
             {"spectra", records}}}}};
}

}  // namespace prism::cli
