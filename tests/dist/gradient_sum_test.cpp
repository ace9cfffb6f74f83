#include "prism/dist/gradient_sum.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/dist/threads.h"

namespace prism::dist {
namespace {

const std::vector<std::vector<int64_t>> kShapes = {{7, 5}, {3}, {16, 16}, {1}};

std::vector<Tensor> zeros() {
  std::vector<Tensor> list;
  for (const auto& shape : kShapes) list.push_back(torch::zeros(shape).set_requires_grad(true));
  return list;
}

// The gradients of micro-batch i: of very different sizes, so that every order of adding gives other bits.
std::vector<Tensor> gradients_of(int64_t i) {
  torch::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + i));
  std::vector<Tensor> list;
  for (const auto& shape : kShapes) list.push_back(torch::randn(shape, generator) * std::pow(10.0, i % 5 - 2));
  return list;
}

void add_gradients(std::vector<Tensor>& parameters, int64_t i) {
  const auto gradients = gradients_of(i);
  for (size_t p = 0; p < parameters.size(); ++p) {
    Tensor& gradient = parameters[p].mutable_grad();
    gradient = gradient.defined() ? gradient + gradients[p] : gradients[p];
  }
}

// Whole parameters with these owners.
std::vector<Part> whole_parts(const std::vector<Tensor>& parameters, const std::vector<int64_t>& owners) {
  std::vector<Part> parts;
  for (size_t p = 0; p < owners.size(); ++p) parts.push_back({p, 0, parameters[p].numel(), owners[p]});
  return parts;
}

// The sums on each rank; undefined where a rank has none.
std::vector<std::vector<Tensor>> sums(int64_t ranks, int64_t batches, bool exact, const std::vector<int64_t>& owners,
                                      int64_t bucket_elements = GradientSum::kBucketElements) {
  std::vector<std::vector<Tensor>> result(static_cast<size_t>(ranks));
  const auto work = [&](const std::shared_ptr<Communicator>& all) {
    auto parameters = zeros();
    const int64_t here = batches / ranks;
    GradientSum sum(all, parameters, {batches, all->rank() * here, here}, exact, whole_parts(parameters, owners),
                    bucket_elements);
    sum([&](int64_t i) { add_gradients(parameters, i); });
    for (const auto& parameter : parameters) result[static_cast<size_t>(all->rank())].push_back(parameter.grad());
  };
  if (ranks == 1)
    work(one_process());
  else
    Threads::run(ranks, work);
  return result;
}

TEST(GradientSum, ExactSumsAreTheSameOnAnyNumberOfProcesses) {
  for (const int64_t batches : {4, 6, 12}) {
    const auto expected = sums(1, batches, /*exact=*/true, {})[0];
    for (int64_t ranks = 2; ranks <= batches; ++ranks) {
      if (batches % ranks != 0) continue;
      for (const auto& of_rank : sums(ranks, batches, /*exact=*/true, {})) {
        for (size_t p = 0; p < kShapes.size(); ++p)
          EXPECT_TRUE(of_rank[p].equal(expected[p])) << batches << " on " << ranks << " ranks, parameter " << p;
      }
    }
  }
}

// Otherwise the test above would show nothing.
TEST(GradientSum, FastSumsDependOnTheNumberOfProcesses) {
  const auto one = sums(1, 12, /*exact=*/false, {})[0], four = sums(4, 12, /*exact=*/false, {})[0];
  EXPECT_FALSE(one[2].equal(four[2]));
  EXPECT_TRUE(one[2].allclose(four[2], 1e-5, 1e-4));
}

TEST(GradientSum, OwnersGetTheSumsThatAllGetWithoutOwners) {
  const std::vector<int64_t> owners = {2, 0, 2, 1};
  const auto expected = sums(1, 6, /*exact=*/true, {})[0];
  for (const int64_t ranks : {3, 6}) {
    const auto found = sums(ranks, 6, /*exact=*/true, owners);
    for (size_t r = 0; r < found.size(); ++r) {
      for (size_t p = 0; p < kShapes.size(); ++p) {
        if (owners[p] == static_cast<int64_t>(r))
          EXPECT_TRUE(found[r][p].equal(expected[p]));
        else
          EXPECT_FALSE(found[r][p].defined());
      }
    }
  }
}

TEST(GradientSum, FastSumsGoToOwnersToo) {
  const auto expected = sums(1, 6, /*exact=*/false, {})[0];
  const auto found = sums(3, 6, /*exact=*/false, {0, 1, 2, 0});
  EXPECT_TRUE(found[2][2].allclose(expected[2], 1e-5, 1e-4));
  EXPECT_TRUE(found[0][0].allclose(expected[0], 1e-5, 1e-4));
}

// Parameter 2 is cut between the ranks 0 and 2; rank 1 has the others.
TEST(GradientSum, RangesOfElementsGetTheSumsOfTheWholeParameter) {
  const auto expected = sums(1, 6, /*exact=*/true, {})[0];
  Threads::run(3, [&](const std::shared_ptr<Communicator>& all) {
    auto parameters = zeros();
    const std::vector<Part> parts = {{0, 0, 35, 1}, {1, 0, 3, 1}, {2, 0, 96, 0}, {2, 96, 160, 2}, {3, 0, 1, 1}};
    GradientSum sum(all, parameters, {6, all->rank() * 2, 2}, /*exact=*/true, parts);
    sum([&](int64_t i) { add_gradients(parameters, i); });
    const Tensor mine = sum.stepped()[2];
    if (all->rank() == 1) {
      TORCH_CHECK(!mine.defined() && sum.stepped()[0].is_same(parameters[0]));
      TORCH_CHECK(parameters[0].grad().equal(expected[0]) && parameters[3].grad().equal(expected[3]));
    } else {
      const Part& part = parts[all->rank() == 0 ? 2 : 3];
      TORCH_CHECK(mine.grad().equal(part.of(expected[2])));
      TORCH_CHECK(mine.is_leaf() && mine.const_data_ptr() == part.of(parameters[2]).const_data_ptr());
    }
    TORCH_CHECK(!parameters[2].grad().defined());
  });
}

TEST(GradientSum, BucketsDoNotChangeExactSums) {
  const auto expected = sums(1, 12, /*exact=*/true, {})[0];
  for (const int64_t elements : {1, 40, 300}) {
    for (const int64_t ranks : {1, 2, 3, 4}) {
      for (const auto& of_rank : sums(ranks, 12, /*exact=*/true, {}, elements)) {
        for (size_t p = 0; p < kShapes.size(); ++p) EXPECT_TRUE(of_rank[p].equal(expected[p])) << elements;
      }
      const std::vector<int64_t> owners = {0, ranks - 1, ranks / 2, 0};
      const auto found = sums(ranks, 12, /*exact=*/true, owners, elements);
      for (size_t p = 0; p < kShapes.size(); ++p)
        EXPECT_TRUE(found[static_cast<size_t>(owners[p])][p].equal(expected[p])) << elements;
    }
  }
}

// A chain of three parameters: a backward pass comes to the last one first.
struct Chain {
  std::vector<Tensor> parameters;
  std::function<void()> between = [] {};  // called between the last parameter and the first

  Chain() {
    const auto generator = at::detail::createCPUGenerator(0);  // of its own: ranks are threads
    for (int i = 0; i < 3; ++i) parameters.push_back(at::randn({8, 8}, generator).set_requires_grad(true));
  }
  void backward(int64_t i) {
    const Tensor x = torch::full({4, 8}, static_cast<float>(i + 1));
    const Tensor y = x.matmul(parameters[0]);
    y.register_hook([&](const Tensor& /*gradient*/) { between(); });
    y.matmul(parameters[1]).tanh().matmul(parameters[2]).square().sum().backward();
  }
};

TEST(GradientSum, BucketsLeaveDuringTheLastBackwardPass) {
  for (const bool owned : {true, false}) {
    const std::vector<int64_t> owners = owned ? std::vector<int64_t>{0, 0, 1} : std::vector<int64_t>{};
    Chain one;
    GradientSum alone(one_process(), one.parameters, {4, 0, 4}, /*exact=*/true);
    alone([&](int64_t i) { one.backward(i); });
    Threads::run(2, [&](const std::shared_ptr<Communicator>& all) {
      Chain chain;
      GradientSum sum(all, chain.parameters, {4, all->rank() * 2, 2}, /*exact=*/true,
                      whole_parts(chain.parameters, owners),
                      /*bucket_elements=*/64);
      TORCH_CHECK(sum.buckets() == 3);
      std::vector<int64_t> sent;
      chain.between = [&] { sent.push_back(all->bytes_sent()); };
      sum([&](int64_t i) { chain.backward(i); });
      TORCH_CHECK(sent.size() == 2 && sent[0] == 0 && sent[1] > 0, sent);
      const bool sends_first = !owned || all->rank() == 1;  // the first parameter belongs to rank 0
      TORCH_CHECK((all->bytes_sent() > sent[1]) == sends_first, sent, " ", all->bytes_sent());
      for (size_t p = 0; p < 3; ++p) {
        if (!owned || owners[p] == all->rank())
          TORCH_CHECK(chain.parameters[p].grad().equal(one.parameters[p].grad()), "parameter ", p);
      }
    });
  }
}

TEST(GradientSum, ParametersWithoutGradientsAreZeros) {
  Threads::run(2, [&](const std::shared_ptr<Communicator>& all) {
    Chain chain;
    chain.parameters.push_back(torch::ones({3}).set_requires_grad(true));  // in no loss, in the first bucket
    GradientSum sum(all, chain.parameters, {2, all->rank(), 1}, /*exact=*/false, {}, /*bucket_elements=*/1);
    sum([&](int64_t i) { chain.backward(i); });
    TORCH_CHECK(chain.parameters[3].grad().eq(0).all().item<bool>());
    TORCH_CHECK(chain.parameters[0].grad().abs().sum().item<double>() > 0);
  });
}

TEST(GradientSum, LeavesNoHookBehind) {
  Chain chain;
  Threads::run(1, [&](const std::shared_ptr<Communicator>& all) {
    { const GradientSum sum(all, chain.parameters, {1, 0, 1}, /*exact=*/false); }
    chain.backward(0);
  });
  EXPECT_TRUE(chain.parameters[0].grad().defined());
}

// All to all and back: 2·(N − 1)/N of the elements leave each process, as with a ring.
TEST(GradientSum, ExactTrafficIsThatOfAReduceScatter) {
  Threads::run(4, [&](const std::shared_ptr<Communicator>& all) {
    std::vector<Tensor> parameters = {torch::zeros({64, 64}).set_requires_grad(true)};
    GradientSum sum(all, parameters, {8, all->rank() * 2, 2}, /*exact=*/true);
    sum([&](int64_t i) { parameters[0].mutable_grad() = torch::full({64, 64}, static_cast<float>(i)); });
    TORCH_CHECK(all->bytes_sent() == 4 * 64 * 64 * 3 / 4, all->bytes_sent());
  });
}

}  // namespace
}  // namespace prism::dist
