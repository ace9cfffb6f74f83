#pragma once

#include "prism/report/page.h"

namespace prism::report {

// How much stays of a run.
struct Limits {
  size_t points = 1000;                              // of a curve
  size_t steps = 8, matrices = -1, directions = 48;  // of its spectra
};

// Shortens the lists of a run for a page, in place. The page does so itself; code that reads many long runs thins each
// before it reads the next. Thinning twice changes nothing.
//   train        of more than limits.points points, as many groups of neighbors: `loss` becomes the mean of a group's
//                finite losses, so that smoothing it is smoothing the run; `low` and `high` keep its smallest and
//                largest, so that no spike is lost; step, tokens and seconds are those of the group's middle point.
//   val, norms   every k-th point, the last always.
//   spectra      evenly spread steps, matrices and directions, the first and the last always.
// Numbers of all these lists are kept to six significant digits.
void thin_run(PageRun& run, const Limits& limits = {});

}  // namespace prism::report
