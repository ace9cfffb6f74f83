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

using report::Align;
using report::TextSeries;

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
  return fmt::format("{:8.2g}{:8.2g}{:8.2g}", quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9));
}

std::string number_text(const std::optional<double>& value) { return fmt::format("{:.4g}", value.value_or(NAN)); }

report::TextPlotOptions plot_options(const Terminal& terminal, const char* x, const char* y) {
  report::TextPlotOptions options;
  options.width = std::clamp<int64_t>(terminal.width - 1, 40, 100);
  options.height = 10;
  options.x_label = x;
  options.y_label = y;
  options.color = terminal.color;
  return options;
}

std::string loss_plot(const std::vector<train::StepRecord>& metrics, const Terminal& terminal) {
  TextSeries train{"training loss", {}, {}}, val{"held-out loss", {}, {}};
  for (const auto& record : metrics) {
    train.x.push_back(static_cast<double>(record.step));
    train.y.push_back(record.loss);
    if (!record.val_loss || !std::isfinite(*record.val_loss)) continue;
    val.x.push_back(static_cast<double>(record.step));
    val.y.push_back(*record.val_loss);
  }
  std::vector<TextSeries> series = {train};
  if (!val.x.empty()) series.push_back(val);
  return report::line_plot(series, plot_options(terminal, "step", "loss"));
}

// Plots the median over all matrices and directions at every recorded step.
std::string course_plot(const std::vector<train::SpectraLine>& spectra, const Terminal& terminal) {
  std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> steps;
  for (const auto& line : spectra) {
    auto& [snr, gain] = steps[line.step];
    snr.insert(snr.end(), line.snr.begin(), line.snr.end());
    gain.insert(gain.end(), line.gain.begin(), line.gain.end());
  }
  if (steps.size() < 2) return "";
  TextSeries snr{"median SNR", {}, {}}, gain{"median gain", {}, {}};
  for (const auto& [step, values] : steps) {
    snr.x.push_back(static_cast<double>(step)), gain.x.push_back(static_cast<double>(step));
    snr.y.push_back(quantile(values.first, 0.5)), gain.y.push_back(quantile(values.second, 0.5));
  }
  return "\n" + report::line_plot({snr, gain}, plot_options(terminal, "step", ""));
}

std::string spectra_table(const std::vector<train::SpectraLine>& lines, const Terminal& terminal) {
  report::TextTable table({{"matrix"},
                           {"SNR 10 %    50 %    90 %", Align::Right},
                           {"gain 10 %    50 %    90 %", Align::Right},
                           {"SNR by direction", Align::Left, 1},
                           {"‖W‖", Align::Right, 2},
                           {"‖O‖", Align::Right, 3}});
  for (const auto& line : lines) {
    table.row({short_name(line.matrix), three_quantiles(line.snr), three_quantiles(line.gain),
               report::spark_line(line.snr, 16), number_text(line.weight_norm), number_text(line.update_norm)});
  }
  return table.text(report::locale_is_utf8(), terminal.width);
}

const train::SpectraLine* find_matrix(const std::vector<train::SpectraLine>& lines, const std::string& part) {
  for (const auto& line : lines) {
    if (line.matrix.find(part) != std::string::npos) return &line;
  }
  return nullptr;
}

[[noreturn]] void refuse_matrix(const std::string& part, const std::string& known) {
  if (known.empty()) throw Error(fmt::format("--matrix: no spectra are recorded, so no matrix matches \"{}\"", part));
  throw Error(fmt::format("--matrix: expected part of a matrix's name, such as {}, got \"{}\"", known, part));
}

std::string matrix_plots(const std::vector<train::SpectraLine>& lines, const std::string& part,
                         const Terminal& terminal) {
  const auto* line = find_matrix(lines, part);
  if (line == nullptr) refuse_matrix(part, lines.empty() ? "" : lines.front().matrix);
  auto snr = plot_options(terminal, "direction", "SNR"), gain = plot_options(terminal, "direction", "gain"),
       values = plot_options(terminal, "index", "σ of T");
  snr.log_y = values.log_y = true;
  return fmt::format("\n{}, step {}\n{}\n{}\n{}", line->matrix, line->step,
                     report::line_plot({{"SNR", {}, line->snr}}, snr),
                     report::line_plot({{"gain", {}, line->gain}, {"theory", {}, line->theory}}, gain),
                     report::line_plot({{"σ", {}, line->singular_values}}, values));
}

std::vector<train::SpectraLine> last_record(const std::vector<train::SpectraLine>& spectra) {
  std::vector<train::SpectraLine> lines;
  for (const auto& line : spectra) {
    if (line.step == spectra.back().step) lines.push_back(line);
  }
  return lines;
}

std::string extremes_text(const std::vector<double>& values) {
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
  if (view.metrics.empty()) return fmt::format("{}: no steps yet\n", view.path);
  const auto& last = view.metrics.back();
  auto text = fmt::format("{}  step {}  loss {}\n\n{}", view.path, last.step, number_text(last.loss),
                          loss_plot(view.metrics, terminal));
  if (view.spectra.empty()) {
    if (!matrix.empty()) refuse_matrix(matrix, "");
    return text + "\nNo spectra recorded; set metrics.spectra_every to record them.\n";
  }
  const auto record = last_record(view.spectra);
  text += course_plot(view.spectra, terminal);
  if (!matrix.empty()) return text + matrix_plots(record, matrix, terminal);
  return text + fmt::format("\nspectra at step {}\n{}", record.front().step, spectra_table(record, terminal));
}

std::string screen_of(const CheckpointView& view, const std::string& matrix, const Terminal& terminal) {
  report::TextTable table({{"matrix"},
                           {"shape", Align::Right, 3},
                           {"weights σ max  min", Align::Right},
                           {"stable rank", Align::Right, 2},
                           {"spectrum"},
                           {"momentum σ max  min", Align::Right, 1},
                           {"spectrum", Align::Left, 4}});
  std::string plots;
  for (const auto& m : view.matrices) {
    table.row({short_name(m.name), fmt::format("{} × {}", m.shape[0], m.shape[1]), extremes_text(m.weight),
               fmt::format("{:.1f}", stable_rank(m.weight)), report::spark_line(m.weight, 12),
               extremes_text(m.momentum), m.momentum.empty() ? "" : report::spark_line(m.momentum, 12)});
    if (matrix.empty() || !plots.empty() || m.name.find(matrix) == std::string::npos) continue;
    auto options = plot_options(terminal, "index", "σ");
    options.log_y = true;
    plots = fmt::format("\n{}\n{}", m.name,
                        report::line_plot({{"weights", {}, m.weight}, {"momentum", {}, m.momentum}}, options));
  }
  if (!matrix.empty() && plots.empty()) refuse_matrix(matrix, view.matrices.empty() ? "" : view.matrices.front().name);
  auto text = fmt::format("{}  step {}\n\n{}{}", view.path, view.step,
                          table.text(report::locale_is_utf8(), terminal.width), plots);
  if (!view.spectra.empty()) text += "\nwith the gradient of one batch\n" + spectra_table(view.spectra, terminal);
  if (!view.spectra.empty() && !matrix.empty()) text += matrix_plots(view.spectra, matrix, terminal);
  return text;
}

report::PageDocument checkpoint_document(const CheckpointView& view) {
  report::PageRun run{.optimizer = "checkpoint", .best = true};
  for (const auto& m : view.matrices) {
    auto& record = run.spectra.emplace_back();
    if (const auto* line = find_matrix(view.spectra, m.name)) record = *line;
    if (record.singular_values.empty()) record.singular_values = m.momentum;
    record.step = view.step;
    record.matrix = m.name;
    record.weight_singular_values = m.weight;
  }
  report::PageDocument document;
  document.kind = report::PageKind::Inspect;
  document.title = view.path;
  document.summary = {{fmt::format("Spectra of the {} hidden matrices of {}.", view.matrices.size(), view.path),
                       report::Tone::Headline}};
  document.optimizers = {{.id = "checkpoint", .label = "checkpoint"}};
  document.runs = {std::move(run)};
  return document;
}

}  // namespace prism::cli
