#include "prism/linalg/product.h"

#include <ATen/Parallel.h>

#include <array>
#include <vector>

#include "prism/linalg/host_product.h"
#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

TEST(Product, IsThatOfMatmul) {
  // The sizes end in the middle of tiles, panels, bands and blocks of depth.
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 400, 260}, {63, 64, 65}, {64, 64, 64}, {50, 300, 389}, {513, 65, 90}, {300, 700, 47}}) {
    const Tensor A = random({m, k}, 1), B = random({k, n}, 2), C = A.matmul(B);
    EXPECT_CLOSE(product(A, B), C, 1e-14) << m << ' ' << k << ' ' << n;
    EXPECT_CLOSE(product(A.to(at::kFloat), B.to(at::kFloat)), C, 3e-6) << m << ' ' << k << ' ' << n;
  }
}

TEST(Product, HasTheSameBitsForAnyStridesAndThreads) {
  if (!has_host_product()) GTEST_SKIP() << "torch's products depend on both";
  const Tensor A = random({3, 301, 530}, 5).to(at::kFloat), B = random({3, 530, 170}, 6).to(at::kFloat);
  const Tensor C = product(A, B);
  EXPECT_SAME(product(A, B.mT().contiguous().mT()), C);
  EXPECT_SAME(product(A[1].slice(1, 0, 530), B[1]), C[1]);
  EXPECT_SAME(product(A.slice(1, 40, 200), B), C.slice(1, 40, 200).contiguous());
  const int before = at::get_num_threads();
  at::set_num_threads(4);  // more threads than matrices: each product is cut
  const Tensor threaded = product(A, B);
  at::set_num_threads(before);
  EXPECT_SAME(threaded, C);
}

TEST(Product, OfATransposedMatrixIsStoredAsItIs) {
  const Tensor A = random({2, 90, 80}, 1), B = random({2, 80, 70}, 2);
  const Tensor C = product(A.mT().contiguous().mT(), B);
  EXPECT_TRUE(C.mT().is_contiguous());
  EXPECT_CLOSE(C, A.matmul(B), 1e-14);
}

TEST(Product, TakesWhatMatmulTakes) {
  const Tensor A = random({2, 3, 70, 80}, 1), B = random({2, 3, 80, 90}, 2);
  EXPECT_CLOSE(product(A, B), A.matmul(B), 1e-14);
  EXPECT_CLOSE(product(A, B[1][2]), A.matmul(B[1][2]), 1e-14);  // one matrix for all
  const Tensor negated = at::imag(at::complex(A, A).conj());    // stores A, reads as -A
  EXPECT_CLOSE(product(negated, B), A.matmul(B).neg(), 1e-14);
  EXPECT_CLOSE(symmetric_product(negated, A.mT()), A.matmul(A.mT()).neg(), 1e-14);
  const Tensor narrow = A.to(at::kBFloat16), other = B.to(at::kBFloat16);
  EXPECT_SAME(product(narrow, other), narrow.matmul(other));
  EXPECT_SAME(product(at::zeros({300, 0}), at::zeros({0, 400})), at::zeros({300, 400}));
  EXPECT_EQ(product(at::zeros({0, 300, 400}), at::zeros({0, 400, 4})).sizes(), at::IntArrayRef({0, 300, 4}));
}

TEST(Product, RefusesFactorsThatDoNotFit) {
  EXPECT_MESSAGE(product(at::zeros({3, 4}), at::zeros({5, 6})),
                 "product: expected factors whose sizes fit, got shapes [3, 4] and [5, 6]");
  EXPECT_MESSAGE(product(at::zeros({4}), at::zeros({4, 6})), "got shapes [4] and [4, 6]");
  EXPECT_MESSAGE(product(at::zeros({3, 4}), at::zeros({4, 6}, at::kMeta)), "on one device, got cpu and meta");
}

TEST(SymmetricProduct, RefusesFactorsThatDoNotFit) {
  EXPECT_MESSAGE(symmetric_product(at::zeros({80, 4}), at::zeros({5, 80})),
                 "symmetric_product: expected factors whose sizes fit, got shapes [80, 4] and [5, 80]");
  EXPECT_MESSAGE(symmetric_product(at::zeros({80, 4}), at::zeros({4, 60})), "got shapes [80, 4] and [4, 60]");
  EXPECT_MESSAGE(symmetric_product(at::zeros({3, 8, 4}), at::zeros({2, 4, 8})), "got shapes [3, 8, 4] and [2, 4, 8]");
}

TEST(SymmetricProduct, OfAMatrixWithItsTransposeIsTheProduct) {
  // Without vector instructions half products start at 64. The other sizes end in the middle of panels, tiles, bands and
  // blocks of depth.
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
  if (!has_host_product()) GTEST_SKIP() << "torch's products depend on both";
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
