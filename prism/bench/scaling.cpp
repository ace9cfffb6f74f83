#include "prism/bench/scaling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "prism/bench/optimizers.h"
#include "prism/bench/timing.h"
#include "prism/bench/work.h"
#include "prism/dist/parts.h"
#include "prism/optim/adam.h"
#include "prism/optim/ownership.h"
#include "prism/train/processes.h"

namespace prism::bench {
namespace {

constexpr double kDionRank = 0.25;   // of the short side
constexpr double kMomentum = 4;      // bytes of PRISM's state an element
constexpr double kAdamState = 8;     // of AdamW's
constexpr double kAdamTraffic = 28;  // bytes that a step of AdamW reads and writes an element
constexpr int64_t kSide = 512, kGpuSide = 2048;

double elements_of(const Shape& shape) { return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>()); }

const Options& matrix_rule() {
  static const auto options = entrant("prism_minimax9").make_options();
  return *options;
}

// The parameters that one rank steps.
struct Load {
  std::map<Shape, int64_t> matrices;  // the number of each shape
  double rest = 0;                    // elements of the other parameters

  double seconds(const Rates& rates) const {
    double sum = kAdamTraffic * rest / rates.bytes_per_s;
    for (const auto& [shape, count] : matrices) {
      const auto work = *step_work(matrix_rule(), {shape});
      const auto n = static_cast<double>(count);
      sum += n * work.flop / rates.flops_at(count) + n * work.bytes / rates.bytes_per_s;
    }
    return sum;
  }

  double state_bytes() const {
    double sum = kAdamState * rest;
    for (const auto& [shape, count] : matrices) sum += kMomentum * static_cast<double>(count) * elements_of(shape);
    return sum;
  }
};

std::vector<Load> loads_of(const ShapeSet& set, Scheme scheme, int64_t ranks) {
  std::vector<Load> loads(scheme == Scheme::Owned ? static_cast<size_t>(ranks) : 1);
  std::vector<Job> jobs;
  std::vector<const Shape*> shapes;
  const auto add = [&](const Options& rule, const Shape& shape) {
    jobs.push_back({std::to_string(jobs.size()), train::ownership_cost(rule, shape)});
    shapes.push_back(&shape);
  };
  for (const auto& shape : set.matrices) add(matrix_rule(), shape);
  for (const auto& shape : set.rest) {
    const auto elements = static_cast<int64_t>(elements_of(shape));
    if (elements <= dist::unit_of(elements)) {
      add(AdamWOptions(), shape);
      continue;
    }
    for (const auto& part : dist::cut(0, elements, static_cast<int64_t>(loads.size())))
      loads[static_cast<size_t>(part.owner)].rest += static_cast<double>(part.size);
  }
  std::vector<double> costs(loads.size(), 0);
  const auto owners = assign(jobs, costs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    Load& load = loads[static_cast<size_t>(owners[i])];
    if (i < set.matrices.size())
      ++load.matrices[*shapes[i]];
    else
      load.rest += elements_of(*shapes[i]);
  }
  return loads;
}

struct Dion {
  double flop = 0, factors = 0, state = 0;
};

Dion dion_of(const ShapeSet& set) {
  Dion sum;
  for (const auto& shape : set.matrices) {
    const auto m = static_cast<double>(shape[shape.size() - 2]), n = static_cast<double>(shape.back());
    const double r = std::max(1.0, kDionRank * std::min(m, n));
    sum.flop += 8 * m * n * r + 2 * m * r * r;
    sum.factors += r * (m + n);
    sum.state += kFloatBytes * (m * n + n * r);
  }
  return sum;
}

}  // namespace

const char* name_of(Scheme scheme) {
  if (scheme == Scheme::Replicated) return "replicated";
  return scheme == Scheme::Owned ? "owned" : "dion-like";
}

double Rates::flops_at(int64_t matrices) const {
  for (size_t i = 1; i < kStacks.size(); ++i) {
    if (matrices > kStacks[i]) continue;
    const double share =
        static_cast<double>(matrices - kStacks[i - 1]) / static_cast<double>(kStacks[i] - kStacks[i - 1]);
    return flops[i - 1] + share * (flops[i] - flops[i - 1]);
  }
  return flops.back();
}

ScalingLine scaling(const ShapeSet& set, Scheme scheme, int64_t ranks, const Rates& rates, const Link& link) {
  double rest = 0, all = 0;
  for (const auto& shape : set.rest) rest += elements_of(shape);
  all = rest + static_cast<double>(set.elements());
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  ScalingLine line;
  line.traffic_bytes = 2 * kFloatBytes * share * all;
  if (scheme == Scheme::DionLike) {
    const auto dion = dion_of(set);
    line.work_s = dion.flop / rates.flops.back() + kAdamTraffic * rest / rates.bytes_per_s;
    line.traffic_bytes = 2 * kFloatBytes * share * (dion.factors + rest);
    line.state_bytes = dion.state + kAdamState * rest;
  } else {
    double sum = 0;
    const auto loads = loads_of(set, scheme, ranks);
    for (const auto& load : loads) {
      const double seconds = load.seconds(rates);
      line.work_s = std::max(line.work_s, seconds);
      line.state_bytes = std::max(line.state_bytes, load.state_bytes());
      sum += seconds;
    }
    line.balance = sum / static_cast<double>(loads.size()) / line.work_s;
  }
  line.link_s = line.traffic_bytes / link.bytes_per_s +
                2 * link.latency_s * std::log2(static_cast<double>(std::max<int64_t>(ranks, 1)));
  return line;
}

Rates measure_rates(at::Device device) {
  const int64_t side = device.is_cpu() ? kSide : kGpuSide, repeats = device.is_cpu() ? 3 : 20;
  Rates rates;
  for (size_t i = 0; i < kStacks.size(); ++i) {
    const std::vector<Shape> shapes(static_cast<size_t>(kStacks[i]), Shape{side, side});
    const auto time = measure(entrant("prism_minimax9"), make_parameters(shapes, device), repeats);
    rates.flops[i] = time.work->flop / (time.best_ms() / 1e3);
    release_cache(device);
  }
  const auto time = measure(entrant("adamw"), make_parameters({{kStacks.back() * side, side}}, device), repeats);
  rates.bytes_per_s = time.work->bytes / (time.best_ms() / 1e3);
  return rates;
}

}  // namespace prism::bench
