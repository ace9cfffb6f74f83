#include "prism/cuda/iteration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace prism::cuda {
namespace {

// The eigenvalues of the iteration's matrices as functions of a singular value from 0 to 1/bound.
using Values = std::vector<double>;

Values start_values(double bound) {
  constexpr int kPoints = 1024;
  Values r;
  for (int i = 0; i <= kPoints; ++i) {
    const double x = static_cast<double>(i) / kPoints;
    r.push_back(x * x / (bound * bound));                  // evenly
    r.push_back(x * x * x * x * x * x / (bound * bound));  // and close to zero
  }
  return r;
}

template <class Function>
Values map(const Values& x, Function&& function) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = function(i);
  return y;
}

double value(const std::vector<double>& c, double a) {
  double z = 0;
  for (auto i = c.rbegin(); i != c.rend(); ++i) z = z * a + *i;
  return z;
}
// The value of Z where R is 0.
double value_at_zero(const GramStep& step) { return value(step.c, step.centered ? -1 : 0); }

// The power of two that brings the largest of the values to at most a quarter of fp16's largest number.
double scale_for(const Values& values) {
  double largest = 1e-3;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return std::exp2(std::floor(std::log2(65504 / (4 * largest))));
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class Planner {
 public:
  explicit Planner(double bound) : r_(start_values(bound)), q_(r_.size(), 1.0) {}

  Iteration plan(const std::vector<GramStep>& steps) {
    plan_.A_split = steps.front().split;
    set_A(steps.front());
    plan_.A_scale = static_cast<float>(A_scale_);
    for (size_t k = 0; k < steps.size(); ++k) {
      z_ = map(a_, [&](size_t i) { return value(steps[k].c, a_[i]); });
      const int64_t from = added_from(steps, k);
      const bool bytes = from == kNever && takes_bytes(steps, k);
      (k == 0 ? plan_.A_bytes : plan_.products.back().writes_bytes) = bytes;  // A was written last
      polynomial(steps[k], k == 0, bytes);
      update_Q(steps[k], k == 0, k + 1 == steps.size());
      if (k + 1 < steps.size()) update_R(steps[k], steps[k + 1], k == 0, from, bytes);
    }
    plan_.Q = Q_;
    plan_.Q_scale = static_cast<float>(Q_scale_);
    find_lower();
    return plan_;
  }

 private:
  void add(IterationProduct product) { plan_.products.push_back(product); }

  void set_A(const GramStep& step) {
    a_ = map(r_, [&](size_t i) { return step.centered ? r_[i] - 1 : r_[i]; });
    A_scale_ = scale_for(a_);
  }

  // The smallest side of matrices for which step k multiplies low halves by z₀, the value of Z where R is 0, in place of Z.
  // This takes no product, only an addition, and is exact for small eigenvalues of R. Between a small eigenvalue and one
  // that becomes z²r, z₀(z − z₀)·low is missing, which moves the small one by its square over z²r. That grows by z₀² in
  // each step until R is last used. The largest of these, over low², is 2.8e4 for Jordan's second step, where no
  // difference is seen. For Jordan's first step it is 3e5, and the error doubles on small matrices. It falls with the side,
  // since low halves are rounding errors; from 512 on, the difference is small. The first step of minimax9 has 1e9.
  int64_t added_from(const std::vector<GramStep>& steps, size_t k) const {
    constexpr double kTolerable = 5e4, kTolerableIfLarge = 5e5;
    constexpr int64_t kLarge = 512;
    if (!steps[k].split || steps[k].centered) return kNever;  // ZR of a centered step adds Z
    const double zero = value_at_zero(steps[k]);
    double moved = 0;
    for (size_t i = 0; i < r_.size(); ++i) {
      if (r_[i] > 0) moved = std::max(moved, std::pow(zero * (1 - zero / z_[i]), 2) / r_[i]);
    }
    moved *= growth_after(steps, k);
    return moved <= kTolerable ? 0 : moved <= kTolerableIfLarge ? kLarge : kNever;
  }

  // Returns true if the low halves of step k may be in bytes. The error, some percent of the low half, is no more than the
  // others for minimax9; after the first step of the set converged it grows by 1e6 and spoils the result.
  static bool takes_bytes(const std::vector<GramStep>& steps, size_t k) {
    constexpr double kTolerable = 2e3;
    return steps[k].split && growth_after(steps, k) <= kTolerable;
  }

  // The growth of a small eigenvalue of R from step k until R is last used.
  static double growth_after(const std::vector<GramStep>& steps, size_t k) {
    double growth = 1;
    for (size_t j = k + 1; j + 1 < steps.size(); ++j) growth *= std::pow(value_at_zero(steps[j]), 2);
    return growth;
  }

  void polynomial(const GramStep& step, bool first, bool bytes) {
    const Buffer copy = bytes ? kZ_bytes : kNone;
    const int power = first ? 1 : 0;
    const auto& c = step.c;
    Z_ = next_Z();
    if (c.size() == 3) {
      Z_scale_ = scale_for(z_);
      return add({.X = kA,
                  .Y = kA,
                  .alpha = f(c[2] * Z_scale_ / (A_scale_ * A_scale_)),
                  .c1 = f(c[1] * Z_scale_ / A_scale_),
                  .diagonal = f(c[0] * Z_scale_),
                  .alpha_power = 2 * power,
                  .c1_power = power,
                  .C1 = kA,
                  .high = Z_,
                  .copy = copy});
    }
    const CompletedSquare square(c);
    const double p = square.p, q = square.q, rho1 = square.rho1, rho0 = square.rho0;  // bindings cannot be captured
    const Values s = map(a_, [&](size_t i) { return a_[i] * (a_[i] + p) + q; });
    const double s_scale = scale_for(s);
    add({.X = kA,
         .Y = kA,
         .alpha = f(s_scale / (A_scale_ * A_scale_)),
         .c1 = f(p * s_scale / A_scale_),
         .diagonal = f(q * s_scale),
         .alpha_power = 2 * power,
         .c1_power = power,
         .C1 = kA,
         .high = kS});
    Z_scale_ = scale_for(z_);
    add({.X = kS,
         .Y = kS,
         .alpha = f(c[4] * Z_scale_ / (s_scale * s_scale)),
         .c1 = f(rho1 * Z_scale_ / A_scale_),
         .diagonal = f(rho0 * Z_scale_),
         .c1_power = power,
         .C1 = kA,
         .high = Z_,
         .copy = copy});
  }

  // A buffer for Z that holds neither the last Z, which may still be read, nor Q.
  Buffer next_Z() const {
    for (const Buffer candidate : {kZ0, kZ1, kZ2}) {
      if (candidate != Z_ && candidate != Q_) return candidate;
    }
    return kNone;
  }

  // Q ← QZ. Both are polynomials of R up to the error of Z. Forcing symmetry on Q is harmless for quintics. For higher
  // degrees that error is larger, and the last step must not force it: the small singular values would suffer.
  void update_Q(const GramStep& step, bool first, bool last) {
    q_ = map(q_, [&](size_t i) { return q_[i] * z_[i]; });
    if (first) {
      Q_ = Z_;
      Q_scale_ = Z_scale_;
      return;
    }
    const double scale = scale_for(q_);
    const auto next = static_cast<Buffer>(kZ0 + kZ1 + kZ2 - Q_ - Z_);
    add({.X = Q_,
         .Y = Z_,
         .symmetric = step.c.size() <= 3 || !last,
         .alpha = f(scale / (Q_scale_ * Z_scale_)),
         .high = next});
    Q_ = next;
    Q_scale_ = scale;
  }

  // V = ZR, in the buffer of S, then R ← VZ. V is symmetric up to the error of Z. In the first step that error would
  // ruin the small eigenvalues, so V is not treated as symmetric there.
  void update_R(const GramStep& step, const GramStep& next, bool first, int64_t added_from, bool bytes) {
    const double added = added_from == kNever ? 0 : value_at_zero(step);
    const Values v = map(r_, [&](size_t i) { return z_[i] * r_[i]; });
    const double v_scale = scale_for(v);
    IterationProduct V{.X = Z_,
                       .Y = kA,
                       .Y_low = step.split ? kA_low : kNone,
                       .added = f(added * v_scale / A_scale_),
                       .added_from = added_from,
                       .reads_bytes = bytes,
                       .symmetric = !first,
                       .alpha = f(v_scale / (Z_scale_ * A_scale_)),
                       .alpha_power = first ? 1 : 0,
                       .high = kS,
                       .low = step.split ? kS_low : kNone,
                       .writes_bytes = bytes};
    if (step.centered) V.C1 = Z_, V.c1 = f(v_scale / Z_scale_);  // ZR = ZA + Z
    add(V);
    r_ = map(r_, [&](size_t i) { return z_[i] * z_[i] * r_[i]; });
    set_A(next);
    add({.X = kS,
         .Y = Z_,
         .X_low = step.split ? kS_low : kNone,
         .added = f(added * A_scale_ / v_scale),
         .added_from = added_from,
         .reads_bytes = bytes,
         .alpha = f(A_scale_ / (v_scale * Z_scale_)),
         .diagonal = next.centered ? f(-A_scale_) : 0,
         .high = kA,
         .low = next.split ? kA_low : kNone});
  }

  // Finds the symmetric matrices that are read only as operands, or added to symmetric products.
  void find_lower() {
    plan_.A_lower = reads_lower(0, kA, kA_low);
    for (size_t p = 0; p < plan_.products.size(); ++p) {
      auto& product = plan_.products[p];
      product.lower = product.symmetric && reads_lower(p + 1, product.high, product.low);
    }
    std::array<bool, kBuffers> lower{};
    lower[kA] = plan_.A_lower;
    for (auto& product : plan_.products) {
      product.X_lower = lower[product.X];
      product.Y_lower = lower[product.Y];
      lower[product.high] = product.lower;
    }
  }

  // Returns true if the products from `first` on read only the lower triangle of what is in these buffers.
  bool reads_lower(size_t first, Buffer high, Buffer low) const {
    for (size_t p = first; p < plan_.products.size(); ++p) {
      const auto& product = plan_.products[p];
      const bool adds_low = product.added != 0 && low != kNone && (product.X_low == low || product.Y_low == low);
      if (!product.symmetric && (product.C1 == high || adds_low)) return false;
      if (product.high == high) return true;
    }
    return high != plan_.Q;
  }

  static float f(double x) { return static_cast<float>(x); }

  Iteration plan_{};
  Values r_, a_, z_, q_;
  double A_scale_ = 1, Z_scale_ = 1, Q_scale_ = 1;
  Buffer Z_ = kNone, Q_ = kNone;
};

}  // namespace

Iteration plan_iteration(const std::vector<GramStep>& steps, double bound) { return Planner(bound).plan(steps); }

}  // namespace prism::cuda
