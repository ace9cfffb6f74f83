#include "prism/cuda/iteration.h"

#include <algorithm>
#include <cmath>

namespace prism::cuda {
namespace {

// The eigenvalues of the iteration's matrices as functions of a singular value from 0 to 1/bound.
using Values = std::vector<double>;

Values start_values(double bound) {
  constexpr int kPoints = 1024;
  Values r;
  for (int i = 0; i <= kPoints; ++i) {
    const double x = static_cast<double>(i) / kPoints;
    r.push_back(x * x / (bound * bound));       // evenly
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

// The power of two that takes the largest of the values to at most a quarter of fp16's largest number.
double scale_for(const Values& values) {
  double largest = 1e-3;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return std::exp2(std::floor(std::log2(65504 / (4 * largest))));
}

class Planner {
 public:
  explicit Planner(double bound) : r_(start_values(bound)), q_(r_.size(), 1.0) {}

  Iteration plan(const std::vector<GramStep>& steps) {
    plan_.A_split = steps.front().split;
    set_A(steps.front());
    plan_.A_scale = static_cast<float>(A_scale_);
    for (size_t k = 0; k < steps.size(); ++k) {
      polynomial(steps[k]);
      update_Q(steps[k], k == 0);
      if (k + 1 < steps.size()) update_R(steps[k], steps[k + 1], k == 0);
    }
    plan_.Q = Q_;
    plan_.Q_scale = static_cast<float>(Q_scale_);
    return plan_;
  }

 private:
  void add(IterationProduct product) { plan_.products.push_back(product); }

  void set_A(const GramStep& step) {
    a_ = map(r_, [&](size_t i) { return step.centred ? r_[i] - 1 : r_[i]; });
    A_scale_ = scale_for(a_);
  }

  // Horner's rule in A²: c₀ + c₁A + c₂A² + A²(c₃A + c₄A² + A²(…)), into the next Z.
  void polynomial(const GramStep& step) {
    const auto& c = step.c;
    const auto coefficient = [&](size_t i) { return i < c.size() ? c[i] : 0.0; };
    const Buffer low = step.split ? kA_low : kNone;
    const Values a2 = map(a_, [&](size_t i) { return a_[i] * a_[i]; });
    const double a2_scale = scale_for(a2);
    size_t top = c.size() / 2 * 2;  // the innermost bracket is c_{top−1}A + c_topA²
    Values y = map(a_, [&](size_t i) { return coefficient(top - 1) * a_[i] + coefficient(top) * a2[i]; });
    Z_ = static_cast<Buffer>(kZ0 + (Z_ + 1 - kZ0) % 3);
    if (Z_ == Q_) Z_ = static_cast<Buffer>(kZ0 + (Z_ + 1 - kZ0) % 3);
    if (top == 2) {  // c₀ + c₁A + c₂A² from the first product
      z_ = map(y, [&](size_t i) { return y[i] + c[0]; });
      Z_scale_ = scale_for(z_);
      add({.X = kA, .Y = kA, .alpha = f(c[2] * Z_scale_ / (A_scale_ * A_scale_)), .c1 = f(c[1] * Z_scale_ / A_scale_),
           .diagonal = f(c[0] * Z_scale_), .C1 = kA, .C1_low = low, .high = Z_});
      return;
    }
    // The brackets alternate between two buffers, so that the last one lies in Z.
    const size_t products = top / 2 - 1;
    Buffer Y = products % 2 == 1 ? kV : Z_;
    double y_scale = scale_for(y);
    add({.X = kA, .Y = kA, .alpha = f(a2_scale / (A_scale_ * A_scale_)), .y1 = f(coefficient(top - 1) * y_scale / A_scale_),
         .y2 = f(coefficient(top) * y_scale / a2_scale), .C1 = kA, .C1_low = low, .high = kU, .second = Y});
    for (top -= 2; top >= 2; top -= 2) {
      const double constant = top == 2 ? c[0] : 0;
      y = map(y, [&](size_t i) { return a2[i] * y[i] + c[top - 1] * a_[i] + c[top] * a2[i] + constant; });
      const double next_scale = scale_for(y);
      const Buffer next = Y == kV ? Z_ : kV;
      add({.X = kU, .Y = Y, .alpha = f(next_scale / (a2_scale * y_scale)), .c1 = f(c[top - 1] * next_scale / A_scale_),
           .c2 = f(c[top] * next_scale / a2_scale), .diagonal = f(constant * next_scale), .C1 = kA, .C1_low = low, .C2 = kU, .high = next});
      Y = next;
      y_scale = next_scale;
    }
    z_ = y;
    Z_scale_ = y_scale;
  }

  // Q ← QZ. Both are polynomials of R but for the error of Z, which is harmless for quintics and a hundred times larger beyond them: there
  // forcing symmetry on Q would cost the small singular values.
  void update_Q(const GramStep& step, bool first) {
    q_ = map(q_, [&](size_t i) { return q_[i] * z_[i]; });
    if (first) {
      Q_ = Z_;
      Q_scale_ = Z_scale_;
      return;
    }
    const double scale = scale_for(q_);
    const auto next = static_cast<Buffer>(kZ0 + kZ1 + kZ2 - Q_ - Z_);
    add({.X = Q_, .Y = Z_, .symmetric = step.c.size() <= 3, .alpha = f(scale / (Q_scale_ * Z_scale_)), .high = next});
    Q_ = next;
    Q_scale_ = scale;
  }

  // V = ZR, then R ← VZ. V is symmetric but for Z's error; in the first step that error would reach the small eigenvalues.
  void update_R(const GramStep& step, const GramStep& next, bool first) {
    const Values v = map(r_, [&](size_t i) { return z_[i] * r_[i]; });
    const double v_scale = scale_for(v);
    IterationProduct V{.X = Z_, .Y = kA, .Y_low = step.split ? kA_low : kNone, .symmetric = !first,
                       .alpha = f(v_scale / (Z_scale_ * A_scale_)), .high = kU, .low = step.split ? kV : kNone};
    if (step.centred) V.C1 = Z_, V.c1 = f(v_scale / Z_scale_);  // ZR = ZA + Z
    add(V);
    r_ = map(r_, [&](size_t i) { return z_[i] * z_[i] * r_[i]; });
    set_A(next);
    add({.X = kU, .Y = Z_, .X_low = step.split ? kV : kNone, .alpha = f(A_scale_ / (v_scale * Z_scale_)),
         .diagonal = next.centred ? f(-A_scale_) : 0, .high = kA, .low = next.split ? kA_low : kNone});
  }

  static float f(double x) { return static_cast<float>(x); }

  Iteration plan_{};
  Values r_, a_, z_, q_;
  double A_scale_ = 1, Z_scale_ = 1, Q_scale_ = 1;
  Buffer Z_ = kZ2, Q_ = kNone;
};

}  // namespace

Iteration plan_iteration(const std::vector<GramStep>& steps, double bound) { return Planner(bound).plan(steps); }

}  // namespace prism::cuda
