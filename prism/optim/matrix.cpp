#include "prism/optim/matrix.h"

#include <numeric>

namespace prism {
namespace {

bool is_batch(int64_t dimensions, Fold fold) { return fold == Fold::Batch || (fold == Fold::Auto && dimensions == 3); }

}  // namespace

std::vector<Tensor> parts_of(const Tensor& parameter, const std::optional<Folding>& folding, const std::string& who) {
  if (!folding) return {parameter};
  TORCH_CHECK_VALUE(parameter.dim() >= 2, who, " must be a matrix, got shape ", parameter.sizes(),
                    "; route it to adamw");
  const auto split = folding->split;
  if (split.empty()) return {parameter};
  const int64_t rows_dim = is_batch(parameter.dim(), folding->fold) ? parameter.dim() - 2 : 0;
  const int64_t rows = std::accumulate(split.begin(), split.end(), int64_t{0});
  TORCH_CHECK(rows == parameter.size(rows_dim), who, ": split ", split, " must add up to its ",
              parameter.size(rows_dim), " rows, got ", rows);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t length : split) {
    parts.push_back(parameter.narrow(rows_dim, begin, length));
    begin += length;
  }
  return parts;
}

std::vector<int64_t> working_shape(const Tensor& part, const std::optional<Folding>& folding, const std::string& who) {
  if (!folding) return part.sizes().vec();
  TORCH_CHECK_VALUE(part.dim() >= 2, who, " must be a matrix, got shape ", part.sizes(), "; route it to adamw");
  if (part.dim() == 2 || is_batch(part.dim(), folding->fold)) return part.sizes().vec();
  return {part.size(0), part.size(0) > 0 ? part.numel() / part.size(0) : 0};
}

std::vector<int64_t> with_matrix_shape(at::IntArrayRef shape, int64_t rows, int64_t columns) {
  auto result = shape.vec();
  result[result.size() - 2] = rows;
  result[result.size() - 1] = columns;
  return result;
}

Tensor per_entry(const Tensor& values, const Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[0] = values.size(0);
  return values.reshape(shape);
}

}  // namespace prism
