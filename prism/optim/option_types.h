#pragma once

// How each type of option is read from and written to JSON: one overload set, used by `option(...)` in the tables.

#include <c10/util/StringUtil.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/linalg/coefficients.h"
#include "prism/optim/options.h"

namespace prism {

template <class E>
struct Words;  // the names of an enum's values, in their order

template <>
struct Words<Side> {
  static constexpr std::array kList = {"auto", "left", "right", "both", "long"};
};
template <>
struct Words<Solver> {
  static constexpr std::array kList = {"gram", "stacked", "exact"};
};
template <>
struct Words<ScaleRule> {
  static constexpr std::array kList = {"moonlight", "spectral", "none"};
};
template <>
struct Words<Normalize> {
  static constexpr std::array kList = {"none", "rows"};
};
template <>
struct Words<CovarianceKind> {
  static constexpr std::array kList = {"instant", "ema", "sketch"};
};
template <>
struct Words<StateType> {
  static constexpr std::array kList = {"auto", "float32", "float64", "bfloat16"};
};
template <>
struct Words<Fold> {
  static constexpr std::array kList = {"auto", "flatten", "batch"};
};
template <>
struct Words<ScheduleKind> {
  static constexpr std::array kList = {"constant", "cosine", "linear", "wsd"};
};

template <class E>
std::string word(E value) {
  return Words<E>::kList.at(static_cast<size_t>(value));
}

template <class T>
struct OptionType;

template <class T>
struct PlainType {
  static Json write(const T& value) { return value; }
};

template <>
struct OptionType<double> : PlainType<double> {
  static std::string name() { return "number"; }
  static bool accepts(const Json& json) { return json.is_number(); }
  static double read(const Json& json) { return json.get<double>(); }
};
template <>
struct OptionType<int64_t> : PlainType<int64_t> {
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
struct OptionType<std::pair<double, double>> : PlainType<std::pair<double, double>> {
  static std::string name() { return "pair"; }
  static bool accepts(const Json& json) {
    return json.is_array() && json.size() == 2 && json[0].is_number() && json[1].is_number();
  }
  static std::pair<double, double> read(const Json& json) { return {json[0].get<double>(), json[1].get<double>()}; }
};
template <>
struct OptionType<Coefficients> {
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
struct OptionType<E> {
  static std::string name() { return c10::Join("|", Words<E>::kList); }
  static bool accepts(const Json& json) {
    if (!json.is_string()) return false;
    for (const char* candidate : Words<E>::kList) {
      if (json.get<std::string>() == candidate) return true;
    }
    return false;
  }
  static E read(const Json& json) {
    const auto text = json.get<std::string>();
    size_t index = 0;
    while (text != Words<E>::kList[index]) ++index;
    return static_cast<E>(index);
  }
  static Json write(E value) { return word(value); }
};

// {"kind": "cosine", "warmup": 100, "total": 1000, "floor": 0.1}; what is left out keeps its default.
template <>
struct OptionType<Schedule> {
  static std::string name() { return "schedule"; }
  static bool accepts(const Json& json);
  static Schedule read(const Json& json);
  static Json write(const Schedule& value);
};

// A line of a table over a member of the struct.
template <class T>
Option option(std::string name, T& member, std::string doc) {
  using Type = OptionType<T>;
  Option line{name, Type::name(), std::move(doc), {}, {}};
  line.get = [&member] { return Type::write(member); };
  line.set = [&member, name](const Json& json) {
    TORCH_CHECK_VALUE(Type::accepts(json), "option '", name, "': expected ", Type::name(), ", got ", json.dump());
    member = Type::read(json);
  };
  return line;
}

inline std::vector<Option> operator+(std::vector<Option> left, std::vector<Option> right) {
  left.insert(left.end(), std::make_move_iterator(right.begin()), std::make_move_iterator(right.end()));
  return left;
}

}  // namespace prism
