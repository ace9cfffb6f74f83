#include "prism/reproduce/measures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "prism/io/error.h"
#include "prism/io/spelling.h"
#include "prism/optim/option_types.h"
#include "prism/reproduce/gain.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

std::optional<double> known(double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; }

std::optional<double> last(const std::vector<double>& norms) {
  return norms.empty() ? std::nullopt : known(norms.back());
}

std::optional<double> bytes(int64_t value) { return static_cast<double>(value); }

// Returns the 95 % quantile of the SNR divided by the 5 % quantile, at the first or the last recorded step.
std::optional<double> snr_spread(const StoredRun& run, bool last) {
  const auto& snr = run.spectra.snr;
  if (snr.empty()) return std::nullopt;
  const auto& quantiles = last ? snr.back() : snr.front();
  const double low = quantiles.front(), high = quantiles.back();
  return low > 0 ? known(high / low) : std::nullopt;
}

std::string factor(double value) { return fmt::format("×{:.3g}", value); }

template <int kDigits>
std::string fixed(double value) {
  return fmt::format("{:.{}f}", value, kDigits);
}
std::string milliseconds(double value) { return fmt::format("{:.2f} ms", value); }
std::string megabytes(double value) { return fmt::format("{:.1f} MB", value / 1e6); }
std::string percent(double value) { return fmt::format("{:.1f} %", 100 * value); }
std::string gflop(double value) { return fmt::format("{:.1f} GFLOP", value / 1e9); }
std::string kilo(double value) { return fmt::format("{:.0f}k", value / 1e3); }

// Returns the operations of all steps of the iteration on a matrix with sides l ≥ k.
double iteration_flop(const json& settings, double l, double k) {
  double flop = 0;
  const auto set = coefficients_of(settings);
  for (const auto& polynomial : set.polynomials()) {
    const size_t degree = polynomial.size() - 1;  // in XᵀX
    const auto squares = static_cast<double>(degree < 2 ? 0 : (degree + 1) / 2);
    flop += 4 * l * k * k + squares * 2 * k * k * k;
  }
  return flop;
}

Side side_of(const json& settings) { return OptionType<Side>::read(settings.value("optimizer.side", "short")); }

}  // namespace

const std::vector<Measure>& measures() {
  static const std::vector<Measure> list = {
      {"loss", "held-out loss", [](const StoredRun& run) { return known(run.summary.val_loss); }, fixed<4>},
      {"diverged", "diverged",
       [](const StoredRun& run) -> std::optional<double> { return run.stability.diverged ? 1 : 0; },
       [](double value) -> std::string { return value > 0 ? "diverged" : "did not diverge"; }},
      {"spikes", "spikes",
       [](const StoredRun& run) -> std::optional<double> { return static_cast<double>(run.stability.spikes.size()); },
       [](double value) { return io::counted(static_cast<int64_t>(value), "spike"); }},
      {"W", "final ‖W‖", [](const StoredRun& run) { return last(run.norms.W); }, fixed<0>},
      {"growth", "growth of ‖W‖",
       [](const StoredRun& run) -> std::optional<double> {
         const auto end = last(run.norms.W);
         return end ? std::optional(*end - run.norms.W.front()) : std::nullopt;
       },
       fixed<0>},
      {"O", "final ‖O‖", [](const StoredRun& run) { return last(run.norms.O); }, fixed<1>},
      {"r2_theory", "R² of the law", [](const StoredRun& run) { return known(run.spectra.r2_theory); }, fixed<5>},
      {"r2", "R² of law × polynomial", [](const StoredRun& run) { return known(run.spectra.r2); }, fixed<7>},
      {"snr_spread_first", "first SNR spread", [](const StoredRun& run) { return snr_spread(run, false); }, factor},
      {"snr_spread_last", "last SNR spread", [](const StoredRun& run) { return snr_spread(run, true); }, factor},
      {"snr_widening", "growth of the SNR spread",
       [](const StoredRun& run) -> std::optional<double> {
         const auto first = snr_spread(run, false), last = snr_spread(run, true);
         if (!first || !last) return std::nullopt;
         return *last / *first;
       },
       factor},
      {"step_ms", "step time", [](const StoredRun& run) { return known(run.summary.timing.step_ms); }, milliseconds},
      {"optimizer_ms", "optimizer", [](const StoredRun& run) { return known(run.summary.timing.optimizer_ms); },
       milliseconds},
      {"share", "share of step", [](const StoredRun& run) { return known(run.summary.timing.optimizer_share); },
       percent},
      {"tokens_per_s", "tokens/s", [](const StoredRun& run) { return known(run.summary.timing.tokens_per_s); }, kilo},
      {"state", "optimizer state", [](const StoredRun& run) { return bytes(run.summary.optimizer_state_bytes); },
       megabytes},
      {"peak", "peak memory", [](const StoredRun& run) { return bytes(run.summary.memory.peak_bytes); }, megabytes},
      {"products", "literal products", [](const StoredRun& run) { return literal_flop(run.key.settings); }, gflop},
  };
  return list;
}

const Measure& measure(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const auto& candidate : measures()) {
    if (candidate.name == name) return candidate;
    known.push_back(candidate.name);
  }
  throw Error(fmt::format("{}: expected a measure ({}), got \"{}\"", where, fmt::join(known, ", "), name));
}

HiddenMatrices hidden_matrices(const json& settings) {
  const auto size = [&](const char* key) { return settings.at(key).get<int64_t>(); };
  const int64_t width = size("model.width"), mlp = size("model.mlp"), head = size("model.head_dim");
  const int64_t queries = size("model.heads") * head, keys = size("model.kv_heads") * head;
  return {
      .shapes =
          {{queries, width}, {keys, width}, {keys, width}, {width, queries}, {mlp, width}, {mlp, width}, {width, mlp}},
      .layers = size("model.layers")};
}

std::optional<double> literal_flop(const json& settings) {
  const auto name = settings.at("optimizer.name").get<std::string>();
  const bool stacked = name == "prism" && settings.at("optimizer.gamma") > 0;
  if (name != "muon" && name != "prism") return std::nullopt;
  if (stacked && (settings.at("optimizer.covariance") != "instant" || side_of(settings) == Side::Both))
    return std::nullopt;
  double flop = 0;
  const auto hidden = hidden_matrices(settings);
  for (auto [m, n] : hidden.shapes) {
    if (stacked) (resolved_side(side_of(settings), m, n) == Side::Left ? n : m) *= 2;
    flop += iteration_flop(settings, static_cast<double>(std::max(m, n)), static_cast<double>(std::min(m, n)));
  }
  return flop * static_cast<double>(hidden.layers);
}

}  // namespace prism::reproduce
