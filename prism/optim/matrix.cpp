#include "prism/optim/matrix.h"

#include <c10/util/accumulate.h>

#include <numeric>

namespace prism {
namespace {

bool is_batch(int64_t dimensions, Fold fold) { return fold == Fold::Batch || (fold == Fold::Auto && dimensions == 3); }

}  // namespace

int64_t rows_dimension(int64_t dimensions, const Folding& folding) {
  return is_batch(dimensions, folding.fold) ? dimensions - 2 : 0;
}

void check_matrix(at::IntArrayRef shape, const Folding& folding, const std::string& who) {
  TORCH_CHECK_VALUE(shape.size() >= 2, who, " must be a matrix, got shape ", shape, "; route it to adamw");
  if (folding.split.empty()) return;
  const int64_t length = shape[rows_dimension(static_cast<int64_t>(shape.size()), folding)];
  const int64_t rows = std::accumulate(folding.split.begin(), folding.split.end(), int64_t{0});
  TORCH_CHECK(rows == length, who, ": split ", folding.split, " must add up to its ", length, " rows, got ", rows);
}

std::vector<int64_t> working_shape(at::IntArrayRef shape, const std::optional<Folding>& folding) {
  if (!folding || shape.size() == 2 || is_batch(static_cast<int64_t>(shape.size()), folding->fold)) return shape.vec();
  return {shape[0], c10::multiply_integers(shape.slice(1))};
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
