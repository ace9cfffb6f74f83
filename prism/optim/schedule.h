#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace prism {

enum class ScheduleKind { Constant, Cosine, Linear, WarmupStableDecay };

// A factor of the peak value as a pure function of the step t = 1, 2, …, so a checkpoint only needs the step:
//   warm-up   t/warmup for t ≤ warmup, in front of every kind
//   constant  1
//   cosine    from 1 to floor along half a cosine over warmup … total
//   linear    from 1 to floor along a line over warmup … total
//   wsd       1, then from 1 to floor along a line over the last `decay` steps before total
// From `total` on it stays at floor.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  int64_t warmup = 0;
  int64_t total = 0;  // needed by all kinds but constant
  double floor = 0;   // a fraction of the peak
  int64_t decay = 0;  // wsd only

  double operator()(int64_t t) const;
  at::Tensor operator()(const at::Tensor& t) const;  // element by element, in float64, without leaving the device

  bool is_constant_one() const { return kind == ScheduleKind::Constant && warmup == 0; }
  void check(const std::string& who) const;  // throws if a setting is impossible
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace prism
