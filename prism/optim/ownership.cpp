#include "prism/optim/ownership.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace prism {

std::vector<int64_t> assign(const std::vector<Job>& jobs, std::vector<double>& loads) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(jobs[b].cost, jobs[a].name) < std::tie(jobs[a].cost, jobs[b].name);
  });
  std::vector<int64_t> owners(jobs.size());
  for (const size_t job : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += jobs[job].cost;
    owners[job] = least - loads.begin();
  }
  return owners;
}

double shaping_cost(at::IntArrayRef shape, int64_t bytes_per_element, const std::vector<GramSide>& sides) {
  const auto elements = static_cast<double>(c10::multiply_integers(shape));
  if (elements == 0) return 0;
  const auto m = static_cast<double>(shape[shape.size() - 2]), n = static_cast<double>(shape.back());
  const auto products = [&](double k, double every) { return 17 * k * k * k / every + 4 * k * m * n; };
  double each = sides.empty() ? products(std::min(m, n), 1) : 0;
  for (const auto& [side, every] : sides) each += products(static_cast<double>(side), static_cast<double>(every));
  return elements / (m * n) * each + kPerByte * static_cast<double>(bytes_per_element) * elements;
}

}  // namespace prism
