#include "prism/dist/parts.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace prism::dist {

int64_t aligned(int64_t elements) {
  constexpr int64_t kAlignment = 16;
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t unit_of(int64_t elements) {
  constexpr int64_t kMostUnits = 64, kLeast = 1024;
  return (std::max(elements, int64_t{1}) + kMostUnits * kLeast - 1) / (kMostUnits * kLeast) * kLeast;
}

std::vector<Part> cut(size_t parameter, int64_t elements, int64_t ranks) {
  const int64_t unit = unit_of(elements), units = (elements + unit - 1) / unit;
  std::vector<Part> parts;
  for (int64_t u = 0; u < units; ++u) {
    const int64_t owner = u * ranks / units, begin = u * unit;
    if (parts.empty() || parts.back().owner != owner) parts.push_back({parameter, begin, 0, owner});
    parts.back().size = std::min(begin + unit, elements) - parts.back().begin;
  }
  return parts;
}

std::vector<Tensor> stepped_by(int64_t rank, const std::vector<Tensor>& parameters, const std::vector<Part>& parts) {
  std::vector<Tensor> stepped(parameters.size());
  for (const auto& part : parts) {
    if (part.owner != rank) continue;
    Tensor& mine = stepped.at(part.parameter);
    TORCH_INTERNAL_ASSERT(!mine.defined(), "process ", rank, " has two parts of parameter ", part.parameter);
    const Tensor& parameter = parameters[part.parameter];
    // For autograd the part is a tensor of its own, not a view: the optimizer takes only leaves.
    const at::AutoDispatchBelowADInplaceOrView untracked;
    mine = is_whole(part, parameter) ? parameter : part.of(parameter);
  }
  return stepped;
}

FlatParts::FlatParts(std::vector<Part> parts, int64_t ranks) : counts(static_cast<size_t>(ranks), 0) {
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.owner < b.owner; });
  for (const auto& part : parts) {
    places.push_back({part, size});
    size += aligned(part.size);
    counts.at(static_cast<size_t>(part.owner)) += aligned(part.size);
  }
}

}  // namespace prism::dist
