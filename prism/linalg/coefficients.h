#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace prism {

// An odd polynomial p(x) = a x + b x³ + c x⁵ + …, as its coefficients (a, b, c, …).
using Polynomial = std::vector<double>;

// A norm of X that bounds its singular values and follows directly from its Gram matrix R = XᵀX.
//   Frobenius  √Σσ²   = √tr R
//   Schatten4  ⁴√Σσ⁴  = √‖R‖_F     never larger: the tighter bound
enum class Norm { Frobenius, Schatten4 };

// The polynomials of a Newton-Schulz iteration, one per step. Applied in turn to the singular values of
// X / (bound·‖X‖), they drive them toward 1, and X toward its polar factor UVᵀ.
//
//   jordan         5 × (3.4445, −4.7750, 2.0315)      Muon; ends within 0.68–1.13
//   you            5 steps, each its own              You 2025
//   polar_express  8 steps                            Amsel et al. 2025; the first five made safe above 1 by s = 1.05
//   minimax9       3 steps of degree 9                minimax on [3e-3, 1], each on the image of the last;
//                                                     ends within 0.88–1.12; the only set with the Schatten norm
//   converged      12 × (2, −1.5, 0.5)                to rounding error, for well-conditioned input
class Coefficients {
 public:
  Coefficients() : Coefficients("jordan") {}
  Coefficients(const std::string& name);  // implicit: a name is accepted wherever a set is
  Coefficients(const char* name) : Coefficients(std::string(name)) {}
  Coefficients(std::vector<Polynomial> polynomials);  // implicit: the user's own, one list per step

  // The set with `steps` steps: the first ones, or the last repeated; 0 keeps the set as it is.
  Coefficients with_steps(int64_t steps) const;

  const std::string& name() const { return name_; }  // empty for the user's own
  const std::vector<Polynomial>& polynomials() const { return polynomials_; }
  Norm norm() const { return norm_; }      // the norm that the input is divided by first
  double bound() const { return bound_; }  // the input is also divided by it: above 1/bound the set diverges

  double operator()(double x) const;  // the composite polynomial

  static const std::vector<std::string>& names();
  friend bool operator==(const Coefficients&, const Coefficients&) = default;

 private:
  std::string name_;
  std::vector<Polynomial> polynomials_;
  double bound_ = 1;
  Norm norm_ = Norm::Frobenius;
};

// One step of the coupled iteration for A^(−1/r): h(x) = a + b x + c x².
// Constants for r = 2 and r = 4, valid for eigenvalues up to 1/1.001; the last one repeats.
const std::vector<Polynomial>& inverse_root_polynomials(int64_t r);

}  // namespace prism
