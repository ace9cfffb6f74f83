#include "prism/train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "prism/train/run_fields.h"

namespace prism::train {
namespace {

using nlohmann::json;

// Rounds to six significant digits, which are enough for charts and keep the file small.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale != 0 ? std::round(value * scale) / scale : value;
}

std::vector<double> numbers(const Tensor& tensor) {
  const auto values = tensor.to(at::kCPU, at::kDouble).contiguous();
  std::vector<double> list(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  for (double& value : list) value = rounded(value);
  return list;
}

constexpr const char* kColumns[] = {"step",    "tokens",       "loss",        "val_loss", "lr",
                                    "aux_lr",  "grad_norm",    "weight_norm", "skipped",  "seconds",
                                    "step_ms", "optimizer_ms", "tokens_per_s"};

// Returns the scalars of a line of metrics.jsonl as a line of CSV.
std::string csv_line(const json& line) {
  std::string text;
  for (const char* column : kColumns) {
    const auto value = line.value(column, json());
    text += fmt::format("{}{}", text.empty() ? "" : ",",
                        value.is_null()      ? ""
                        : value.is_boolean() ? "1"
                                             : value.dump());
  }
  return text + "\n";
}

}  // namespace

json to_json(const StepRecord& record) {
  StepRecord line = record;
  for (auto& [type, norms] : line.norms) {
    norms.G = rounded(norms.G), norms.W = rounded(norms.W);
    for (auto* norm : {&norms.M, &norms.D, &norms.O}) {
      if (*norm) *norm = rounded(**norm);
    }
  }
  return io::to_json(line);
}

MetricsWriter::MetricsWriter(const RunFolder& folder, int64_t step, Files files)
    : metrics_(io::JsonLinesWriter::resume(folder.metrics_file(), step)),
      spectra_(io::JsonLinesWriter::resume(folder.spectra_file(), step)),
      first_step_(step + 1),
      earlier_(folder.metrics()) {
  if (files.tensorboard) events_.emplace(folder.path, first_step_);
  if (!files.csv) return;
  // Rewrite the table, because metrics.jsonl has lost the lines of later steps.
  auto table = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const auto& record : earlier_) table += csv_line(io::to_json(record));
  csv_.emplace(folder.metrics_table(), O_WRONLY | O_CREAT | O_TRUNC);
  csv_->write_all(table);
}

void MetricsWriter::write(const StepRecord& record) {
  const auto line = to_json(record);
  metrics_.append(line);
  if (csv_) csv_->write_all(csv_line(line));
  if (!events_) return;
  report::Scalars scalars = {{"train/loss", record.loss},
                             {"train/grad_norm", record.grad_norm},
                             {"rate/lr", record.lr},
                             {"rate/aux_lr", record.aux_lr},
                             {"time/tokens_per_s", record.tokens_per_s},
                             {"time/step_ms", record.step_ms},
                             {"time/optimizer_ms", record.optimizer_ms}};
  if (record.val_loss) scalars.emplace_back("val/loss", *record.val_loss);
  if (record.weight_norm) scalars.emplace_back("norm/hidden_matrices", *record.weight_norm);
  events_->scalars(record.step, scalars);
}

void MetricsWriter::write(const std::vector<SpectraLine>& spectra) {
  for (const auto& line : spectra) spectra_.append(io::to_json(line));
}

std::vector<SpectraLine> spectra_lines(int64_t step, const std::vector<MatrixSpectrum>& spectra) {
  std::vector<SpectraLine> lines;
  for (const auto& matrix : spectra) {
    const Spectrum& s = matrix.spectrum;
    auto& line = lines.emplace_back();
    line.step = step;
    line.matrix = matrix.name;
    line.singular_values = numbers(s.singular_values);
    line.snr = numbers(s.snr);
    line.gain = numbers(s.gain);
    line.theory = numbers(s.theory);
    line.augmented = numbers(s.augmented);
    line.weight_norm = rounded(matrix.weight_norm.item<double>());
    line.update_norm = rounded(matrix.update_norm.item<double>());
  }
  return lines;
}

void MetricsWriter::text(const std::string& tag, const std::string& markdown) {
  if (events_) events_->text(tag, first_step_, markdown);
}

void MetricsWriter::sync() {
  metrics_.sync();
  spectra_.sync();
  if (events_) events_->sync();
}

}  // namespace prism::train
