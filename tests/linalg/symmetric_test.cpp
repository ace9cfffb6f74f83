#include "prism/linalg/symmetric.h"

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

TEST(SymmetricProduct, OfAMatrixWithItsTransposeIsTheProduct) {
  for (const int64_t n :
       {1, 5, 255, 256, 300, 389}) {  // panels start at 256; 300 and 389 end in the middle of panels and tiles
    const Tensor X = random({n / 2 + 1, n}, 1);
    EXPECT_CLOSE(symmetric_product(X.mT(), X), X.mT().matmul(X), 1e-14) << n;
    const Tensor narrow = X.to(at::kFloat);
    EXPECT_CLOSE(symmetric_product(narrow.mT(), narrow), X.mT().matmul(X), 1e-6) << n;
  }
}

TEST(SymmetricProduct, IsExactlySymmetric) {
  for (const int64_t n : {7, 300}) {
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
