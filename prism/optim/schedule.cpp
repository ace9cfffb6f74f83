#include "prism/optim/schedule.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace prism {
namespace {

double clamp01(double x) { return std::clamp(x, 0.0, 1.0); }
at::Tensor clamp01(const at::Tensor& x) { return x.clamp(0.0, 1.0); }
double cosine(double x) { return std::cos(x); }
at::Tensor cosine(const at::Tensor& x) { return x.cos(); }

// The position of t between `begin` and `end`, within [0, 1]. It has no branches on t, so the same code serves numbers
// and tensors.
template <class Real>
Real progress(const Real& t, int64_t begin, int64_t end) {
  const double length = static_cast<double>(std::max<int64_t>(end - begin, 1));
  return clamp01((t - static_cast<double>(begin)) / length);
}

template <class Real>
Real factor(const Schedule& s, const Real& t) {
  const Real warm = progress<Real>(t, s.warmup > 0 ? 0 : -1, s.warmup);
  const double fall = 1 - s.floor;
  switch (s.kind) {
    case ScheduleKind::Cosine:
      return warm * (s.floor + (cosine(progress(t, s.warmup, s.total) * std::numbers::pi) + 1.0) * (0.5 * fall));
    case ScheduleKind::Linear:
      return warm * (1.0 - progress(t, s.warmup, s.total) * fall);
    case ScheduleKind::WarmupStableDecay:
      return warm * (1.0 - progress(t, s.total - s.decay, s.total) * fall);
    case ScheduleKind::Constant:
      break;
  }
  return warm;
}

}  // namespace

double Schedule::operator()(int64_t t) const { return factor(*this, static_cast<double>(t)); }

at::Tensor Schedule::operator()(const at::Tensor& t) const { return factor(*this, t.to(at::kDouble)); }

void Schedule::check(const std::string& who) const {
  TORCH_CHECK_VALUE(warmup >= 0, who, ": warmup must be 0 or more, got ", warmup);
  TORCH_CHECK_VALUE(floor >= 0 && floor <= 1, who, ": floor must be a fraction of the peak from 0 to 1, got ", floor);
  const bool constant = kind == ScheduleKind::Constant;
  TORCH_CHECK_VALUE(!constant || (total == 0 && floor == 0), who,
                    ": a constant schedule takes no total and no floor, got ", total, " and ", floor);
  TORCH_CHECK_VALUE(constant || total > warmup, who, ": total must be more than warmup, ", warmup, ", got ", total);
  const bool decays = kind == ScheduleKind::WarmupStableDecay;
  TORCH_CHECK_VALUE(decays ? decay > 0 && decay <= total - warmup : decay == 0, who, ": decay must be ",
                    decays ? "from 1 to total − warmup" : "0 (it belongs to wsd)", ", got ", decay);
}

}  // namespace prism
