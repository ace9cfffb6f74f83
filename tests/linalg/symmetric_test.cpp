#include "prism/linalg/symmetric.h"

#include <ATen/Parallel.h>

#include "prism/linalg/lower_product.h"
#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

TEST(SymmetricProduct, OfAMatrixWithItsTransposeIsTheProduct) {
  // Half products start at 64. The other sizes end in the middle of panels, tiles, bands and blocks of depth.
  for (const int64_t n : {1, 5, 63, 64, 65, 96, 300, 389, 513}) {
    for (const int64_t k : {1, 150, 700}) {
      const Tensor X = random({k, n}, 1);
      EXPECT_CLOSE(symmetric_product(X.mT(), X), X.mT().matmul(X), 1e-14) << n << ' ' << k;
      const Tensor narrow = X.to(at::kFloat);
      EXPECT_CLOSE(symmetric_product(narrow.mT(), narrow), X.mT().matmul(X), 3e-6) << n << ' ' << k;
    }
  }
}

TEST(SymmetricProduct, HasTheSameBitsForAnyStridesAndThreads) {
  if (!has_lower_product()) GTEST_SKIP() << "torch's products depend on both";
  const Tensor X = random({3, 301, 530}, 5).to(at::kFloat);
  const Tensor C = symmetric_product(X.mT(), X);
  const Tensor strided = X.mT().contiguous().mT();
  EXPECT_SAME(symmetric_product(strided.mT(), strided), C);
  const int before = at::get_num_threads();
  at::set_num_threads(4);  // more threads than matrices: each product is cut
  const Tensor threaded = symmetric_product(X.mT(), X);
  at::set_num_threads(before);
  EXPECT_SAME(threaded, C);
  EXPECT_SAME(symmetric_product(X[1].mT(), X[1]), C[1]);
}

TEST(SymmetricProduct, IsExactlySymmetric) {
  for (const int64_t n : {7, 100, 300}) {
    const Tensor X = random({n, n}, 2).to(at::kFloat);
    const Tensor C = symmetric_product(X.mT(), X);
    EXPECT_SAME(C, C.mT().contiguous()) << n;
  }
}

TEST(SymmetricProduct, OfABatchIsThatOfEachMatrix) {
  const Tensor X = random({2, 3, 40, 260}, 3);
  const Tensor C = symmetric_product(X.mT(), X);
  EXPECT_CLOSE(C, X.mT().matmul(X), 1e-14);
  EXPECT_CLOSE(symmetric_product(X[0], X[0].mT()), X[0].matmul(X[0].mT()), 1e-14);
  EXPECT_CLOSE(symmetric_product(X.mT().contiguous().mT().mT(), X.mT().contiguous().mT()), C, 1e-14);  // strided
}

TEST(SymmetricProduct, OfEmptyMatricesHasTheirShape) {
  EXPECT_SAME(symmetric_product(at::zeros({300, 0}), at::zeros({0, 300})), at::zeros({300, 300}));
  EXPECT_EQ(symmetric_product(at::zeros({0, 300, 4}), at::zeros({0, 4, 300})).sizes(), at::IntArrayRef({0, 300, 300}));
  EXPECT_EQ(symmetric_product(at::zeros({0, 3}), at::zeros({3, 0})).sizes(), at::IntArrayRef({0, 0}));
}

TEST(SymmetricProduct, KeepsSixteenBitTypes) {
  const Tensor X = random({8, 4}, 4).to(at::kBFloat16);
  EXPECT_SAME(symmetric_product(X.mT(), X), X.mT().matmul(X));
}

}  // namespace
}  // namespace prism
