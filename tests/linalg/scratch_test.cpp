#include "prism/linalg/scratch.h"

#include <thread>

#include "prism/linalg/product.h"
#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

TEST(Scratch, ReusesMemoryWithinAScope) {
  const ScratchScope scope;
  const void* first = scratch({100, 100}, at::kFloat).data_ptr();
  const Tensor smaller = scratch({50, 100}, at::kFloat);
  EXPECT_EQ(smaller.data_ptr(), first);
  EXPECT_NE(scratch({50, 100}, at::kFloat).data_ptr(), first);  // in use
  EXPECT_EQ(smaller.sizes(), at::IntArrayRef({50, 100}));
}

TEST(Scratch, MayOutliveItsScopeAndItsThread) {
  Tensor X;
  std::thread([&] {
    const ScratchScope scope;
    X = scratch_copy(at::full({1000}, 3.0));
  }).join();
  EXPECT_SAME(X, at::full({1000}, 3.0));
}

TEST(Scratch, FunctionsGiveTheSameInsideAndOutside) {
  const Tensor A = random({2, 40, 30}, 1), B = random({2, 30, 20}, 2), C = random({2, 80, 90}, 3);
  const auto all = [&] {
    return std::vector<Tensor>{scratch_copy(A),
                               scaled(A, 0.5),
                               product(A, B),
                               product(A[0], B[0]),
                               product(C, C.mT()),
                               product(C[0], C[0].mT()),
                               symmetric_product(C, C.mT())};
  };
  const auto outside = all();
  const ScratchScope scope;
  const auto inside = all();
  for (size_t i = 0; i < inside.size(); ++i) EXPECT_CLOSE(inside[i], outside[i], 1e-15) << i;
}

}  // namespace
}  // namespace prism
