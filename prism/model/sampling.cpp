#include "prism/model/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "prism/io/error.h"

namespace prism::model {
namespace {

uint32_t likeliest(std::span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

void GenerateOptions::check() const {
  if (tokens < 0) throw Error(fmt::format("tokens must be at least 0, got {}", tokens));
  if (!(temperature >= 0) || std::isinf(temperature)) {
    throw Error(fmt::format("temperature must be a number ≥ 0, got {}", temperature));
  }
  if (top_k < 0) throw Error(fmt::format("top_k must be at least 0 (0: all tokens), got {}", top_k));
  if (!(top_p > 0 && top_p <= 1)) throw Error(fmt::format("top_p must be in (0, 1], got {}", top_p));
}

Sampler::Sampler(const GenerateOptions& options) : options_(options), generator_(options.seed) { options_.check(); }

uint32_t Sampler::draw(std::span<const float> logits) {
  const bool numbers = std::all_of(logits.begin(), logits.end(), [](float z) { return std::isfinite(z); });
  if (logits.empty() || !numbers) {
    throw std::runtime_error("the model's logits are not finite; its weights are broken");
  }
  if (options_.temperature == 0) return likeliest(logits);

  std::vector<uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](uint32_t a, uint32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + options_.top_k, ids.end(), likelier);
    ids.resize(options_.top_k);
  }
  if (options_.top_p < 1) std::sort(ids.begin(), ids.end(), likelier);

  const double largest = logits[*std::min_element(ids.begin(), ids.end(), likelier)];
  std::vector<double> sums;  // of unnormalized probabilities
  double sum = 0;
  for (const uint32_t id : ids) sums.push_back(sum += std::exp((logits[id] - largest) / options_.temperature));
  if (options_.top_p < 1) {
    const auto last = std::lower_bound(sums.begin(), sums.end(), options_.top_p * sum);
    if (last != sums.end()) sums.erase(last + 1, sums.end());
  }
  // 53 bits in [0, 1). Spelled out because the library's distributions differ between implementations.
  const double u = static_cast<double>(generator_() >> 11) * 0x1p-53 * sums.back();
  return ids[std::min<size_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin(), sums.size() - 1)];
}

}  // namespace prism::model
