#include "prism/train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace prism::train {
namespace {

using nlohmann::json;

// Six digits say all there is to see and keep the file small.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale != 0 ? std::round(value * scale) / scale : value;
}

json numbers(const Tensor& tensor) {
  const auto values = tensor.to(at::kCPU, at::kDouble).contiguous();
  if (values.dim() == 0) return rounded(values.item<double>());
  if (values.dim() > 1) {
    json rows = json::array();
    for (int64_t row = 0; row < values.size(0); ++row) rows.push_back(numbers(values[row]));
    return rows;
  }
  json row = json::array();
  const double* data = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) row.push_back(rounded(data[i]));
  return row;
}

json norms_of(const std::vector<MatrixNorms>& list) {
  json types = json::object();
  for (const auto& norms : list) {
    json& type = types[norms.type] = {{"G", rounded(norms.G)}, {"W", rounded(norms.W)}};
    if (norms.M) type.update({{"M", rounded(*norms.M)}, {"D", rounded(*norms.D)}});
    if (norms.O) type["O"] = rounded(*norms.O);
  }
  return types;
}

}  // namespace

json to_json(const StepRecord& r) {
  json line = {{"step", r.step},
               {"tokens", r.tokens},
               {"loss", r.loss},
               {"lr", r.lr},
               {"aux_lr", r.aux_lr},
               {"grad_norm", r.grad_norm},
               {"batch", r.batch},
               {"seconds", r.seconds},
               {"step_ms", r.step_ms},
               {"optimizer_ms", r.optimizer_ms},
               {"tokens_per_s", r.tokens_per_s}};
  if (r.skipped) line.update({{"skipped", true}, {"culprit", r.culprit}});
  if (!r.norms.empty()) line["norms"] = norms_of(r.norms);
  if (r.val_loss) line["val_loss"] = *r.val_loss;
  if (r.weight_norm) line["weight_norm"] = *r.weight_norm;
  return line;
}

namespace {

constexpr const char* kColumns[] = {"step",    "tokens",       "loss",        "val_loss", "lr",
                                    "aux_lr",  "grad_norm",    "weight_norm", "skipped",  "seconds",
                                    "step_ms", "optimizer_ms", "tokens_per_s"};

}  // namespace

std::string csv_header() { return fmt::format("{}\n", fmt::join(kColumns, ",")); }

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

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, int64_t step, Files files)
    : metrics_(io::JsonLinesWriter::resume(folder / "metrics.jsonl", step)),
      spectra_(io::JsonLinesWriter::resume(folder / "spectra.jsonl", step)),
      first_step_(step + 1) {
  if (files.tensorboard) events_.emplace(folder, first_step_);
  if (!files.csv) return;
  // Lines of later steps are gone from metrics.jsonl, so the table is written anew from it.
  auto table = csv_header();
  for (const auto& line : io::read_json_lines(folder / "metrics.jsonl")) table += csv_line(line);
  csv_.emplace(folder / "metrics.csv", O_WRONLY | O_CREAT | O_TRUNC);
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

void MetricsWriter::write(int64_t step, const std::vector<MatrixSpectrum>& spectra) {
  for (const auto& line : spectra_lines(step, spectra)) spectra_.append(line);
}

std::vector<json> spectra_lines(int64_t step, const std::vector<MatrixSpectrum>& spectra) {
  std::vector<json> lines;
  for (const auto& matrix : spectra) {
    const Spectrum& s = matrix.spectrum;
    lines.push_back({{"step", step},
                     {"name", matrix.name},
                     {"singular_values", numbers(s.singular_values)},
                     {"snr", numbers(s.snr)},
                     {"gain", numbers(s.gain)},
                     {"theory", numbers(s.theory)},
                     {"augmented", numbers(s.augmented)},
                     {"weight_norm", numbers(matrix.weight_norm)},
                     {"update_norm", numbers(matrix.update_norm)}});
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
