#include "prism/linalg/coefficients.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace prism {
namespace {

// p(x/s): rounding may push a singular value a little above 1, where the raw polynomials of the early steps diverge.
std::vector<Polynomial> with_safety(std::vector<Polynomial> polynomials, double s, size_t steps) {
  for (size_t k = 0; k < steps; ++k) {
    double power = s;
    for (double& coefficient : polynomials[k]) {
      coefficient /= power;
      power *= s * s;
    }
  }
  return polynomials;
}

struct NamedSet {
  std::vector<Polynomial> polynomials;
  double bound = 1;
  Norm norm = Norm::Frobenius;
};

// The table is local to the function: a user's global options may need it before the globals of this file exist.
const std::vector<std::pair<std::string, NamedSet>>& sets() {
  static const std::vector<std::pair<std::string, NamedSet>> table = {
      {"jordan", {std::vector<Polynomial>(5, {3.4445, -4.7750, 2.0315})}},
      {"you",
       {{{4.0848, -6.8946, 2.9270},
         {3.9505, -6.3029, 2.6377},
         {3.7418, -5.5913, 2.3037},
         {2.8769, -3.1427, 1.2046},
         {2.8366, -3.0525, 1.2012}}}},
      {"polar_express",
       {with_safety({{8.28721201814563, -23.595886519098837, 17.300387312530933},
                     {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                     {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                     {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                     {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                     {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                     {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
                     {1.875, -1.25, 0.375}},
                    1.05, 5)}},
      // Needs at least six decimals: fewer break the range. It diverges above 1, and close to 1 it is so steep that
      // rounding errors show: hence the bound. Its slope at 0 is less than Jordan's; the tighter norm makes up for it.
      {"minimax9",
       {{{14.80094337, -144.4595382, 480.2615616, -617.0305152, 268.3831496},
         {6.410621007, -15.35472243, 13.09394023, -4.358054242, 0.4929334429},
         {3.629521295, -7.028789121, 6.474278279, -2.538754037, 0.3511528997}},
        1.05,
        Norm::Schatten4}},
      {"converged", {std::vector<Polynomial>(12, {2, -1.5, 0.5})}},
  };
  return table;
}

}  // namespace

Coefficients::Coefficients(const std::string& name) : name_(name) {
  const auto found = std::ranges::find(sets(), name, &std::pair<std::string, NamedSet>::first);
  TORCH_CHECK_VALUE(found != sets().end(), "coefficients: expected one of ", c10::Join(", ", names()),
                    " or one list of numbers per step, got '", name, "'");
  polynomials_ = found->second.polynomials;
  bound_ = found->second.bound;
  norm_ = found->second.norm;
}

Coefficients::Coefficients(std::vector<Polynomial> polynomials) : polynomials_(std::move(polynomials)) {
  TORCH_CHECK_VALUE(!polynomials_.empty(), "coefficients: expected at least one step, got an empty list");
  for (size_t k = 0; k < polynomials_.size(); ++k) {
    TORCH_CHECK_VALUE(polynomials_[k].size() >= 2, "coefficients: step ", k + 1,
                      " must have two or more numbers (of x, x³, x⁵, …), got ", polynomials_[k].size());
    for (const double value : polynomials_[k]) {
      TORCH_CHECK_VALUE(std::isfinite(value), "coefficients: step ", k + 1, " must be finite, got ", value);
    }
  }
}

Coefficients Coefficients::with_steps(int64_t steps) const {
  TORCH_CHECK_VALUE(steps >= 0, "steps: expected 1 or more (0 for the length of the set), got ", steps);
  Coefficients result = *this;
  if (steps > 0) result.polynomials_.resize(steps, polynomials_.back());
  return result;
}

double Coefficients::operator()(double x) const {
  x /= bound_;
  for (const auto& polynomial : polynomials_) {
    double value = 0;
    for (auto it = polynomial.rbegin(); it != polynomial.rend(); ++it) value = value * x * x + *it;
    x *= value;
  }
  return x;
}

const std::vector<std::string>& Coefficients::names() {
  static const auto all = [] {
    std::vector<std::string> list;
    for (const auto& [name, set] : sets()) list.push_back(name);
    return list;
  }();
  return all;
}

const std::vector<Polynomial>& inverse_root_polynomials(int64_t r) {
  static const std::vector<Polynomial> square = {{7.42487, -18.3958, 12.8967},
                                                 {3.48773, -2.33004, 0.440469},
                                                 {2.77661, -2.07064, 0.463023},
                                                 {1.99131, -1.37394, 0.387593},
                                                 {15.0 / 8, -5.0 / 4, 3.0 / 8}};
  static const std::vector<Polynomial> fourth = {{3.85003, -10.8539, 8.61893},
                                                 {1.80992, -0.587778, 0.0647852},
                                                 {1.50394, -0.594516, 0.121161},
                                                 {45.0 / 32, -9.0 / 16, 5.0 / 32}};
  TORCH_CHECK_VALUE(r == 2 || r == 4, "inverse_root: the coupled iteration has roots 2 and 4, got ", r,
                    "; use RootMethod::Eigh");
  return r == 2 ? square : fourth;
}

}  // namespace prism
