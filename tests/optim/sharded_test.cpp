// Tests what a run on several processes relies on: the result of a matrix does not depend on the matrices stacked with
// it, every process computes the same owner for a matrix, and parts of tensors reach their owners and come back.

#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "prism/linalg/host_product.h"
#include "prism/optim/engine.h"
#include "prism/optim/ownership.h"
#include "prism/optim/registry.h"
#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

// ---- companions

// Returns the matrix "w" after three steps in a stack with `companions` other matrices.
Tensor trained(const std::string& name, const Json& options, at::IntArrayRef shape, int64_t companions,
               at::ScalarType type) {
  NamedTensors parameters;
  for (int64_t i = 0; i <= companions; ++i)
    parameters.emplace_back(i == companions / 2 ? "w" : "w" + std::to_string(i), parameter(random(shape, i).to(type)));
  const auto index = companions / 2;
  parameters[index].second = parameter(random(shape, 99).to(type));
  const auto optimizer = make_optimizer(name, parameters, options);
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t i = 0; i <= companions; ++i)
      parameters[i].second.mutable_grad() = random(shape, i == index ? 1000 + step : 100 * step + i).to(type);
    optimizer->step();
  }
  return parameters[index].second.detach();
}

// The products of prism and muon depend on nothing but their operands, where the processor can take them. torch's may
// differ in the last bit with the alignment of a matrix in its stack: sides that are multiples of 4 keep every matrix at a
// multiple of 64 bytes.
bool takes_any_sides(const std::string& name) { return has_host_product() && (name == "prism" || name == "muon"); }

struct Companions : testing::TestWithParam<std::tuple<std::string, Json>> {};

TEST_P(Companions, DoNotChangeAResult) {
  const auto& [name, options] = GetParam();
  std::vector<std::vector<int64_t>> shapes = {{8, 4}, {32, 48}, {64, 64}, {100, 36}, {3, 16, 24}};
  if (takes_any_sides(name)) shapes.insert(shapes.end(), {{7, 5}, {33, 129}, {81, 90}, {3, 17, 31}});
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto& shape : shapes) {
      const Tensor alone = trained(name, options, shape, 0, type);
      for (const int64_t companions : {1, 2, 7})
        EXPECT_TRUE(alone.equal(trained(name, options, shape, companions, type)))
            << at::IntArrayRef(shape) << " of " << type << " with " << companions << " others";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Companions,
                         testing::Values(std::tuple("prism", Json::object()),
                                         std::tuple("prism", Json{{"covariance", "ema"}}),
                                         std::tuple("prism", Json{{"covariance", "ema"}, {"side", "inputs"}}),
                                         std::tuple("prism", Json{{"covariance", "ema"}, {"side", "whitened"}}),
                                         std::tuple("muon", Json::object()), std::tuple("soap", Json::object()),
                                         std::tuple("adamw", Json::object())),
                         [](const auto& one) { return std::get<0>(one.param) + std::to_string(one.index); });

struct Threads : testing::TestWithParam<std::tuple<std::string, Json>> {};

TEST_P(Threads, DoNotChangeAResult) {
  const auto& [name, options] = GetParam();
  if (!has_host_product()) GTEST_SKIP() << "torch's products depend on threads";
  const int before = at::get_num_threads();
  for (const auto& shape : std::vector<std::vector<int64_t>>{{1000, 37}, {37, 1000}, {129, 77}, {300, 257}}) {
    for (const int64_t companions : {0, 2}) {
      at::set_num_threads(1);
      const Tensor expected = trained(name, options, shape, companions, at::kFloat);
      for (const int threads : {2, 5}) {
        at::set_num_threads(threads);
        EXPECT_TRUE(expected.equal(trained(name, options, shape, companions, at::kFloat)))
            << at::IntArrayRef(shape) << " with " << companions << " others on " << threads << " threads";
      }
    }
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(All, Threads,
                         testing::Values(std::tuple("prism", Json::object()),
                                         std::tuple("prism", Json{{"covariance", "ema"}}),
                                         std::tuple("prism", Json{{"covariance", "ema"}, {"side", "whitened"}}),
                                         std::tuple("prism", Json{{"solver", "stacked"}}),
                                         std::tuple("muon", Json::object())),
                         [](const auto& one) { return std::get<0>(one.param) + std::to_string(one.index); });

// ---- owners

std::vector<Job> jobs_of(const std::vector<double>& costs) {
  std::vector<Job> jobs;
  for (size_t i = 0; i < costs.size(); ++i) jobs.push_back({"w" + std::to_string(i), costs[i]});
  return jobs;
}

TEST(Ownership, GivesTheLargestJobsFirstToTheLeastLoadedRank) {
  std::vector<double> loads(2);
  EXPECT_EQ(assign(jobs_of({1, 5, 4, 3}), loads), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(loads, (std::vector<double>{6, 7}));
}

TEST(Ownership, DoesNotDependOnTheOrderOfTheJobs) {
  auto jobs = jobs_of({3, 3, 3, 2, 2, 1, 7, 3});
  std::vector<double> loads(3);
  const auto owners = assign(jobs, loads);
  for (int64_t round = 0; round < 5; ++round) {
    std::vector<size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::rotate(order.begin(), order.begin() + round + 1, order.end());
    std::vector<Job> rotated;
    for (const size_t i : order) rotated.push_back(jobs[i]);
    std::vector<double> fresh(3);
    const auto found = assign(rotated, fresh);
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(found[i], owners[order[i]]);
  }
}

// Assigning the longest jobs first stays within 4/3 − 1/(3N) of the optimum. `best` is a lower bound of the optimum.
void expect_balanced(const std::vector<std::vector<int64_t>>& shapes, int64_t ranks) {
  std::vector<double> costs;
  for (const auto& shape : shapes) costs.push_back(shaping_cost(shape, 12));
  std::vector<double> loads(ranks);
  assign(jobs_of(costs), loads);
  const auto n = static_cast<double>(ranks);
  double best = std::accumulate(costs.begin(), costs.end(), 0.0) / n;
  std::sort(costs.rbegin(), costs.rend());
  for (size_t k = 0; k * static_cast<size_t>(ranks) < costs.size(); ++k)  // some rank has k + 1 of the k·N + 1 largest
    best = std::max(best, static_cast<double>(k + 1) * costs[k * static_cast<size_t>(ranks)]);
  EXPECT_LE(*std::max_element(loads.begin(), loads.end()), best * (4.0 / 3 - 1 / (3 * n))) << ranks << " ranks";
}

std::vector<std::vector<int64_t>> decoder(int64_t layers, int64_t width, int64_t keys, int64_t mlp) {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<std::vector<int64_t>> one = {{width, width}, {keys, width}, {keys, width}, {width, width},
                                                   {mlp, width},   {mlp, width},  {width, mlp}};
    shapes.insert(shapes.end(), one.begin(), one.end());
  }
  return shapes;
}

TEST(Ownership, BalancesTheMatricesOfRealModels) {
  auto experts = decoder(24, 2048, 2048, 5632);
  for (int64_t layer = 0; layer < 24; ++layer) {
    for (int64_t e = 0; e < 60; ++e) experts.insert(experts.end(), {{1408, 2048}, {1408, 2048}, {2048, 1408}});
  }
  for (const int64_t ranks : {2, 3, 4, 8, 64}) {
    expect_balanced(decoder(24, 896, 128, 4864), ranks);    // Qwen2-0.5B
    expect_balanced(decoder(28, 3584, 512, 18944), ranks);  // Qwen2-7B
    expect_balanced(experts, ranks);                        // Qwen1.5-MoE
  }
}

TEST(Ownership, CountsTheSidesThatARuleUses) {
  const auto sides = [](const Options& options, const std::vector<int64_t>& shape) {
    return options.gram_sides(shape);
  };
  using Sides = std::vector<GramSide>;
  PrismOptions recommended;
  recommended.use_mixed_defaults();
  EXPECT_EQ(sides(recommended, {8, 24}), (Sides{{8}, {24, 16}}));  // a root of the inputs every 16 steps
  EXPECT_EQ(sides(recommended, {24, 8}), (Sides{{8}}));
  EXPECT_EQ(sides(recommended, {8, 40}), (Sides{{8}}));  // more than 4 times as wide as high
  EXPECT_EQ(sides(PrismOptions(), {8, 24}), (Sides{{8}}));
  EXPECT_EQ(sides(PrismOptions().side(Side::Right), {8, 24}), (Sides{{16}}));  // of the stack [T; γD]
  EXPECT_EQ(sides(PrismOptions().side(Side::Both), {8, 12}), (Sides{{8}, {12}}));
  EXPECT_EQ(sides(recommended.gamma(0), {8, 24}), (Sides{{8}}));
  EXPECT_EQ(sides(MuonOptions(), {5, 24, 8}), (Sides{{8}}));
  EXPECT_EQ(sides(SOAPOptions(), {8, 24}), (Sides{{8}, {24}}));
  const auto cost = [](const Sides& list) { return shaping_cost({8, 24}, 0, list); };
  EXPECT_EQ(cost({{24}}), 17.0 * 24 * 24 * 24 + 4.0 * 24 * 8 * 24);
  EXPECT_EQ(cost({{24, 16}}), 17.0 * 24 * 24 * 24 / 16 + 4.0 * 24 * 8 * 24);
  EXPECT_EQ(cost({{8}, {24}}), cost({{8}}) + cost({{24}}));
}

TEST(Ownership, CountsProductsOfTheShortSideAndBytes) {
  EXPECT_EQ(shaping_cost({4, 4}, 0), 21 * 64);
  EXPECT_EQ(shaping_cost({8, 4}, 0), (17 + 4 * 2) * 64);
  EXPECT_EQ(shaping_cost({4, 8}, 0), (17 + 4 * 2) * 64);
  EXPECT_EQ(shaping_cost({3, 4, 4}, 0), 3 * 21 * 64);
  EXPECT_EQ(shaping_cost({4, 4}, 12), 21 * 64 + kPerByte * 12 * 16);
  EXPECT_EQ(shaping_cost({0, 4}, 12), 0);
}

// ---- layouts

// The exchange of a single process.
class Alone : public Exchange {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  void maximum(Tensor& /*values*/) override {}
  void broadcast(Tensor& /*values*/, int64_t /*root*/) override {}

 protected:
  Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) override {
    EXPECT_EQ(sent, received);
    return {[input] { return input; }};
  }
};

TEST(Layout, PartsKeepTheRowsThatEachRankHolds) {
  const Layout layout{{10, 3}, {{{0, 0}, {4, 3}}, {{4, 0}, {4, 3}}, {{8, 0}, {2, 3}}}, std::make_shared<Alone>()};
  EXPECT_TRUE(layout.is_cut(0));
  EXPECT_FALSE(layout.is_cut(1));
  const Layout part = layout.part(0, 3, 6);  // rows 3 … 8
  EXPECT_EQ(part.shape, (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(part.boxes[0], (Box{{0, 0}, {1, 3}}));
  EXPECT_EQ(part.boxes[1], (Box{{1, 0}, {4, 3}}));
  EXPECT_EQ(part.boxes[2], (Box{{5, 0}, {1, 3}}));
  EXPECT_EQ(layout.part(0, 0, 4).boxes[2].numel(), 0);
}

TEST(Layout, WhatGoesToOwnersComesBack) {
  const Layout layout{{4, 3}, {{{0, 0}, {4, 3}}}, std::make_shared<Alone>()};
  const Tensor T = random({5, 4, 3}, 1), D = random({5, 4, 3}, 2);
  const auto whole = to_owners({T, D}, layout, {0, 0, 0, 0, 0})();
  EXPECT_TRUE(whole[0].equal(T));
  EXPECT_TRUE(whole[1].equal(D));
  EXPECT_FALSE(to_owners({T, Tensor()}, layout, {0, 0, 0, 0, 0})()[1].defined());
  EXPECT_TRUE(from_owners(T, layout, {0, 0, 0, 0, 0})().equal(T));
  EXPECT_EQ(layout.exchange->bytes_sent(), 0);  // nothing left this process
  EXPECT_TRUE(assembled(T[0], layout).equal(T[0]));
}

TEST(Layout, IsReplicatedIfEveryRankHoldsAll) {
  const auto boxes = [](std::vector<Box> list) { return Layout{{4, 3}, std::move(list), std::make_shared<Alone>()}; };
  const Box whole{{0, 0}, {4, 3}};
  EXPECT_TRUE(boxes({whole, whole}).is_replicated());
  EXPECT_TRUE(boxes({whole, whole}).part(0, 1, 2).is_replicated());
  EXPECT_FALSE(boxes({whole, {{4, 0}, {0, 3}}}).is_replicated());
  EXPECT_FALSE(
      (Layout{{0, 3}, {{{0, 0}, {0, 3}}}, std::make_shared<Alone>()}.is_replicated()));  // there is no work to share
}

TEST(Layout, UpdatesComeBackInTheTypeTheyTravelIn) {
  const Layout layout{{4, 3}, {{{0, 0}, {4, 3}}}, std::make_shared<Alone>()};
  layout.exchange->send_updates_as(at::kBFloat16);
  const Tensor U = random({2, 4, 3}, 1).to(at::kFloat);
  const Tensor back = from_owners(U, layout, {0, 0})();
  EXPECT_EQ(back.scalar_type(), at::kFloat);
  EXPECT_TRUE(back.equal(U.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_FALSE(back.equal(U));
}

TEST(Layout, CutsThePartOfThisProcessOutOfAWholeTensor) {
  const Layout layout{{4, 6}, {{{1, 0}, {2, 6}}}, std::make_shared<Alone>()};
  const Tensor whole = random({4, 6}, 1);
  EXPECT_TRUE(cut(whole, layout, {2, 6}).equal(whole.narrow(0, 1, 2)));
  EXPECT_TRUE(cut(whole, layout, {3, 6}).is_same(whole));  // no such part
}

// ---- the exchange of a step

// The exchange of the first of two processes, of which the other sends zeros. `log` lists the messages: T for operands, U
// for updates, which travel in bfloat16 to be told apart.
class Recorded : public Exchange {
 public:
  Recorded() { send_updates_as(at::kBFloat16); }

  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  void maximum(Tensor& /*values*/) override {}
  void broadcast(Tensor& /*values*/, int64_t /*root*/) override {}

  std::string log;

 protected:
  Pending start(Tensor input, std::vector<int64_t> /*sent*/, std::vector<int64_t> received) override {
    const bool is_update = input.scalar_type() == at::kBFloat16;
    const auto name = (is_update ? "U" : "T") + std::to_string(is_update ? updates_++ : operands_++);
    log += "send " + name + ", ";
    return {[this, name, output = at::zeros({c10::sum_integers(received)}, input.options())] {
      log += "take " + name + ", ";
      return output;
    }};
  }

 private:
  int64_t operands_ = 0, updates_ = 0;
};

// An engine with matrices of these shapes, of which each of two processes has half of the rows.
struct Halves {
  std::shared_ptr<Recorded> exchange = std::make_shared<Recorded>();
  MuonOptions options;
  std::vector<Tensor> parameters;
  Engine engine;

  explicit Halves(const std::vector<std::pair<std::string, std::vector<int64_t>>>& matrices) {
    std::vector<std::string> names;
    std::vector<LayoutPtr> layouts;
    for (const auto& [name, shape] : matrices) {
      const int64_t rows = shape[0] / 2, columns = shape[1];
      const Layout layout{shape, {{{0, 0}, {rows, columns}}, {{rows, 0}, {rows, columns}}}, exchange};
      parameters.push_back(parameter(at::ones({rows, columns})));
      names.push_back(name);
      layouts.push_back(std::make_shared<const Layout>(layout));
    }
    engine.set_group(0, options, parameters, names, layouts);
    engine.make_state();
  }

  const std::vector<Bucket>& buckets() const { return engine.groups().front().buckets; }
};

TEST(Rounds, NeighborsTravelWhileABucketIsShaped) {
  Halves halves({{"a", {8, 8}}, {"b", {8, 12}}, {"c", {8, 16}}, {"d", {8, 20}}});
  for (const auto& one : halves.parameters) one.mutable_grad() = at::ones_like(one);
  halves.engine.step({});
  // A bucket is shaped when its operands are taken: the operands of the next and the updates of the last are under way.
  EXPECT_EQ(halves.exchange->log,
            "send T0, send T1, take T0, send T2, send U0, take T1, take U0, send T3, send U1, take T2, take U1, "
            "send U2, take T3, take U2, send U3, take U3, ");
}

TEST(Rounds, GiveEveryOwnerWork) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> matrices;
  const std::vector<int64_t> shape = {4, int64_t{1} << 20};  // two exceed the stack of an owner
  for (int64_t layer = 1; layer <= 10; ++layer) matrices.emplace_back("layers." + std::to_string(layer), shape);
  const Halves halves(matrices);
  ASSERT_EQ(halves.buckets().size(), 5);
  std::vector<int> seen(matrices.size());
  for (const auto& round : halves.buckets()) {
    ASSERT_EQ(round.entries.size(), 2);
    EXPECT_NE(round.entries[0].owner, round.entries[1].owner);
    EXPECT_EQ(round.state["momentum"].sizes(), (std::vector<int64_t>{2, 2, shape[1]}));
    for (const auto& entry : round.entries) ++seen[entry.parameter];
  }
  EXPECT_EQ(seen, std::vector<int>(matrices.size(), 1));
}

TEST(Rounds, HoldAsManyMatricesOfAnOwnerAsFitIntoAStack) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> matrices;
  for (int64_t i = 0; i < 9; ++i) matrices.emplace_back(std::to_string(i), std::vector<int64_t>{4, int64_t{1} << 19});
  const Halves halves(matrices);
  ASSERT_EQ(halves.buckets().size(), 2);  // 24 MiB hold three matrices: 3 and 3, then 2 and 1
  EXPECT_EQ(halves.buckets()[0].entries.size(), 6);
  EXPECT_EQ(halves.buckets()[1].entries.size(), 3);
}

}  // namespace
}  // namespace prism::test
