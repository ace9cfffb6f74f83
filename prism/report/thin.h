#pragma once

#include "prism/report/page.h"

namespace prism::report {

// The most that is kept of a run.
struct Limits {
  size_t points = 1000;                              // per curve
  size_t steps = 8, matrices = -1, directions = 48;  // of the spectra; -1: all
};

// Shortens the lists of a run in place, for a page. `html` calls it for every run; code that reads many long runs calls
// it after each to save memory. A second call changes nothing.
//   train        at most limits.points groups of neighbors. `loss` is the mean of a group's finite losses, so that the
//                page can smooth it like the run itself. `low` and `high` are the group's smallest and largest loss, so
//                that no spike is lost. step, tokens and seconds are those of the group's middle point.
//   val, norms   evenly spread points, including the first and the last
//   spectra      evenly spread steps, matrices and directions, including the first and the last
// Reals in these lists are rounded to six significant digits.
void thin_run(PageRun& run, const Limits& limits = {});

}  // namespace prism::report
