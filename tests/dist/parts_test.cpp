#include "prism/dist/parts.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace prism::dist {
namespace {

TEST(Parts, OfAParameterAreItsElementsInOrder) {
  for (const int64_t elements : {1, 1024, 1025, 9600, 65536, 65537, 1000000}) {
    for (const int64_t ranks : {1, 2, 3, 8, 64}) {
      int64_t next = 0, last = -1;
      for (const auto& part : cut(7, elements, ranks)) {
        EXPECT_EQ(part.parameter, 7);
        EXPECT_EQ(part.begin, next);
        EXPECT_EQ(part.begin % unit_of(elements), 0);
        EXPECT_GT(part.size, 0);
        EXPECT_GT(part.owner, last);
        EXPECT_LT(part.owner, ranks);
        last = part.owner;
        next += part.size;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(Parts, OfALargeParameterAreAboutEqual) {
  for (const int64_t ranks : {2, 4, 8}) {
    const auto parts = cut(0, 1000000, ranks);
    EXPECT_EQ(parts.size(), static_cast<size_t>(ranks));
    const auto unit = static_cast<double>(unit_of(1000000));
    for (const auto& part : parts) EXPECT_NEAR(static_cast<double>(part.size), 1e6 / ranks, 2 * unit);
  }
}

TEST(Parts, AProcessStepsTheMemoryOfItsParts) {
  const std::vector<Tensor> parameters = {torch::zeros({40, 50}).set_requires_grad(true),
                                          torch::zeros({3, 3}).set_requires_grad(true)};
  const auto stepped = stepped_by(1, parameters, {{0, 0, 1024, 0}, {0, 1024, 976, 1}, {1, 0, 9, 1}});
  EXPECT_EQ(stepped[0].sizes(), (std::vector<int64_t>{976}));
  EXPECT_TRUE(stepped[0].is_leaf());
  stepped[0].fill_(1);
  EXPECT_EQ(parameters[0].sum().item<double>(), 976);
  EXPECT_TRUE(stepped[1].is_same(parameters[1]));
  EXPECT_FALSE(stepped_by(0, parameters, {{0, 0, 1024, 0}, {0, 1024, 976, 1}, {1, 0, 9, 1}})[1].defined());
}

}  // namespace
}  // namespace prism::dist
