#pragma once

// Conversion of each type of option from and to JSON, and the numbers in it that ranges apply to.

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "prism/linalg/polar.h"
#include "prism/linalg/shaping.h"
#include "prism/optim/schedule.h"

namespace prism {

using Json = nlohmann::json;
using Betas = std::pair<double, double>;

enum class StateType { Auto, Float32, Float64, BFloat16 };

// Turns a tensor of more than two dimensions into matrices.
//   Auto     three dimensions are a batch (stacked experts), four and more are a convolution, flattened
//   Flatten  (out, in, k…) → (out, in·k…)
//   Batch    (…, m, n): a matrix for each leading index
enum class Fold { Auto, Flatten, Batch };

// The factor of an orthogonalized update, for matrices (m, n).
//   Moonlight  0.2·√max(m, n): AdamW's root mean square (Liu et al. 2025)
//   Spectral   √max(1, m/n)
//   None       1
enum class ScaleRule { Moonlight, Spectral, None };

// Normalization of the rows of an update O, before its scale.
//   None  nothing
//   Rows  divide each output row by the root of a running mean of its squares (Li et al. 2025, "NorMuon"):
//           v ← β₂v + (1−β₂)·mean of O² along the row;   O′ = O/√v,  rescaled so that ‖O′‖_F = ‖O‖_F
//         As in the authors' code v is not bias-corrected: the factor would be the same for all rows, and the rescaling
//         removes it. Nothing is added to √v, and rows of zeros stay zero.
enum class Normalize { None, Rows };

// The covariance of the innovation that PRISM damps with.
//   Instant  DᵀD of this step (the paper)
//   Ema      a dense average over steps, Ĉ ← β₂Ĉ + (1−β₂)DᵀD, bias-corrected
//   Sketch   a low-rank stream of that average, by an eigendecomposition at each step (sketch.h)
//   Subspace the same by one step of subspace iteration: no n × n matrix is decomposed
// With covariance_every = k the averages are refreshed at the steps 1, 1 + k, 1 + 2k, … of a parameter, by
// Ĉ ← β₂ᵏĈ + (1−β₂ᵏ)DᵀD, bias-corrected by the steps covered: 1 − β₂^(k·refreshes). Between refreshes D is not formed.
enum class CovarianceKind { Instant, Ema, Sketch, Subspace };

// The names of an enum's values, in their order.
template <class E>
inline constexpr std::array<const char*, 0> kWords = {};
template <>
inline constexpr std::array kWords<Side> = {"short", "left", "right", "both", "long", "inputs", "balanced", "whitened"};
template <>
inline constexpr std::array kWords<Solver> = {"gram", "stacked", "exact"};
template <>
inline constexpr std::array kWords<ScaleRule> = {"moonlight", "spectral", "none"};
template <>
inline constexpr std::array kWords<Normalize> = {"none", "rows"};
template <>
inline constexpr std::array kWords<CovarianceKind> = {"instant", "ema", "sketch", "subspace"};
template <>
inline constexpr std::array kWords<StateType> = {"auto", "float32", "float64", "bfloat16"};
template <>
inline constexpr std::array kWords<Fold> = {"auto", "flatten", "batch"};
template <>
inline constexpr std::array kWords<ScheduleKind> = {"constant", "cosine", "linear", "wsd"};

template <class E>
std::string word(E value) {
  static_assert(!kWords<E>.empty());
  return kWords<E>.at(static_cast<size_t>(value));
}

template <class T>
struct OptionType;

template <class T>
struct PlainType {
  static Json write(const T& value) { return value; }
  static std::vector<double> numbers(const T& /*value*/) { return {}; }  // the numbers that a range applies to
};

template <>
struct OptionType<double> : PlainType<double> {
  static std::vector<double> numbers(double value) { return {value}; }
  static std::string name() { return "number"; }
  static bool accepts(const Json& json) { return json.is_number(); }
  static double read(const Json& json) { return json.get<double>(); }
};
template <>
struct OptionType<int64_t> : PlainType<int64_t> {
  static std::vector<double> numbers(int64_t value) { return {static_cast<double>(value)}; }
  static std::string name() { return "integer"; }
  static bool accepts(const Json& json) { return json.is_number_integer(); }
  static int64_t read(const Json& json) { return json.get<int64_t>(); }
};
template <>
struct OptionType<bool> : PlainType<bool> {
  static std::string name() { return "boolean"; }
  static bool accepts(const Json& json) { return json.is_boolean(); }
  static bool read(const Json& json) { return json.get<bool>(); }
};
template <>
struct OptionType<std::vector<int64_t>> : PlainType<std::vector<int64_t>> {
  static std::string name() { return "integers"; }
  static bool accepts(const Json& json) {
    if (!json.is_array()) return false;
    for (const auto& item : json) {
      if (!item.is_number_integer()) return false;
    }
    return true;
  }
  static std::vector<int64_t> read(const Json& json) { return json.get<std::vector<int64_t>>(); }
};
template <>
struct OptionType<Betas> : PlainType<Betas> {
  static std::vector<double> numbers(const Betas& value) { return {value.first, value.second}; }
  static std::string name() { return "pair"; }
  static bool accepts(const Json& json) {
    return json.is_array() && json.size() == 2 && json[0].is_number() && json[1].is_number();
  }
  static Betas read(const Json& json) { return {json[0].get<double>(), json[1].get<double>()}; }
};
template <>
struct OptionType<Coefficients> : PlainType<Coefficients> {
  static std::string name() { return "coefficients"; }
  static bool accepts(const Json& json) {
    if (json.is_string()) return true;
    if (!json.is_array()) return false;
    for (const auto& step : json) {
      if (!step.is_array()) return false;
      for (const auto& value : step) {
        if (!value.is_number()) return false;
      }
    }
    return true;
  }
  static Coefficients read(const Json& json) {
    if (json.is_string()) return {json.get<std::string>()};
    return {json.get<std::vector<Polynomial>>()};
  }
  static Json write(const Coefficients& value) {
    return value.name().empty() ? Json(value.polynomials()) : Json(value.name());
  }
};

template <class E>
requires std::is_enum_v<E>
struct OptionType<E> : PlainType<E> {
  static std::string name() { return c10::Join("|", kWords<E>); }
  static bool accepts(const Json& json) { return json.is_string() && index_of(json) < kWords<E>.size(); }
  static E read(const Json& json) { return static_cast<E>(index_of(json)); }
  static Json write(E value) { return word(value); }

 private:
  static size_t index_of(const Json& json) {
    auto text = json.get<std::string>();
    if (std::is_same_v<E, Side> && text == "auto") text = "short";  // its former name, in saved files
    const auto& words = kWords<E>;
    return std::find(words.begin(), words.end(), text) - words.begin();
  }
};

// {"kind": "cosine", "warmup": 100, "total": 1000, "floor": 0.1}; missing keys keep their defaults.
template <>
struct OptionType<Schedule> : PlainType<Schedule> {
  static std::string name() { return "schedule"; }
  static bool accepts(const Json& json);
  static Schedule read(const Json& json);
  static Json write(const Schedule& value);
};

}  // namespace prism
