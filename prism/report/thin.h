#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

namespace prism::report {

inline constexpr size_t kMostPoints = 1000;    // of a curve
inline constexpr size_t kMostDirections = 48;  // of a spectrum
inline constexpr size_t kMostSteps = 8;        // of one run's spectra

// Makes the lists of a page's run short enough, in place. The page does so itself; who reads many long runs thins each
// before the next. Doing it again changes nothing.
//   train      of more than kMostPoints points, as many groups of neighbors: `loss` becomes the mean of a group's
//   finite
//              losses, so that smoothing it is smoothing the run; `low` and `high` keep its smallest and largest, so
//              that no spike is lost; step, tokens and seconds are those of the group's middle point.
//   val, norms every k-th point, the last always.
//   spectra    of the recorded steps evenly spread ones, first and last always; of a record's directions likewise.
// Numbers of all these lists are kept to six significant digits.
void thin_run(nlohmann::json& run, size_t most_points = kMostPoints);

}  // namespace prism::report
