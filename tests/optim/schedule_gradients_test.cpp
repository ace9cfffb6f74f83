// Schedules, clipping and the finiteness of gradients.

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Schedule, ConstantIsOneAfterItsWarmup) {
  EXPECT_EQ(Schedule{}(0), 1);
  EXPECT_EQ(Schedule{}(1000), 1);
  const Schedule warm{.kind = ScheduleKind::Constant, .warmup = 4, .total = 0, .floor = 0, .decay = 0};
  EXPECT_EQ(warm(1), 0.25);
  EXPECT_EQ(warm(4), 1);
  EXPECT_EQ(warm(100), 1);
}

TEST(Schedule, CosineFallsAlongHalfAPeriod) {
  const Schedule cosine{.kind = ScheduleKind::Cosine, .warmup = 10, .total = 110, .floor = 0.1, .decay = 0};
  EXPECT_DOUBLE_EQ(cosine(5), 0.5);
  EXPECT_DOUBLE_EQ(cosine(10), 1);
  EXPECT_DOUBLE_EQ(cosine(35), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 4)));
  EXPECT_DOUBLE_EQ(cosine(60), 0.55);
  EXPECT_DOUBLE_EQ(cosine(110), 0.1);
  EXPECT_DOUBLE_EQ(cosine(5000), 0.1);
}

TEST(Schedule, LinearFallsAlongALine) {
  const Schedule linear{.kind = ScheduleKind::Linear, .warmup = 10, .total = 110, .floor = 0.2, .decay = 0};
  EXPECT_DOUBLE_EQ(linear(1), 0.1);
  EXPECT_DOUBLE_EQ(linear(10), 1);
  EXPECT_DOUBLE_EQ(linear(60), 0.6);
  EXPECT_DOUBLE_EQ(linear(110), 0.2);
  EXPECT_DOUBLE_EQ(linear(200), 0.2);
}

TEST(Schedule, WarmupStableDecayFallsAtTheEndOnly) {
  const Schedule wsd{.kind = ScheduleKind::WarmupStableDecay, .warmup = 10, .total = 110, .floor = 0, .decay = 20};
  EXPECT_DOUBLE_EQ(wsd(5), 0.5);
  EXPECT_DOUBLE_EQ(wsd(50), 1);
  EXPECT_DOUBLE_EQ(wsd(90), 1);
  EXPECT_DOUBLE_EQ(wsd(100), 0.5);
  EXPECT_DOUBLE_EQ(wsd(110), 0);
  EXPECT_DOUBLE_EQ(wsd(111), 0);
}

TEST(Schedule, OfATensorIsThatOfItsElements) {
  for (const auto kind :
       {ScheduleKind::Constant, ScheduleKind::Cosine, ScheduleKind::Linear, ScheduleKind::WarmupStableDecay}) {
    const bool constant = kind == ScheduleKind::Constant;
    const Schedule schedule{.kind = kind,
                            .warmup = 3,
                            .total = constant ? 0 : 20,
                            .floor = constant ? 0 : 0.1,
                            .decay = kind == ScheduleKind::WarmupStableDecay ? 5 : 0};
    schedule.check("test");
    const auto steps = torch::arange(0, 30, torch::kFloat32);
    const auto factors = schedule(steps);
    for (int64_t t = 0; t < 30; ++t) EXPECT_NEAR(factors[t].item<double>(), schedule(t), 1e-15);
  }
}

TEST(ClipGradNorm, EqualsTorchs) {
  for (const double max_norm : {0.5, 1e3}) {
    const NamedTensors ours = {{"a", parameter(random({5, 4}, 1))},
                               {"b", parameter(random({7}, 2, torch::kFloat32))},
                               {"c", parameter(random({3}, 3))},
                               {"none", parameter(random({3}, 3))},
                               {"empty", parameter(torch::zeros({0, 3}))}};
    const auto theirs = copy_of(ours);
    set_gradients(ours, 1);
    set_gradients(theirs, 1);
    ours[3].second.mutable_grad() = theirs[3].second.mutable_grad() = Tensor();
    std::vector<Tensor> a;
    std::vector<Tensor> b;
    for (const auto& [name, tensor] : ours) a.push_back(tensor);
    for (const auto& [name, tensor] : theirs) b.push_back(tensor);
    const auto norm = clip_grad_norm(a, max_norm);
    const double expected = torch::nn::utils::clip_grad_norm_(b, max_norm);
    EXPECT_EQ(norm.scalar_type(), torch::kFloat64);
    EXPECT_NEAR(norm.item<double>(), expected, 1e-6 * expected);
    for (size_t i = 0; i < a.size(); ++i) {
      if (i != 3) {
        EXPECT_CLOSE(a[i].grad(), b[i].grad(), 1e-6);
      }
    }
  }
}

TEST(ClipGradNorm, ScalesNothingByANonFiniteNorm) {
  for (const double poison : {kNaN, kInfinity}) {
    const auto a = parameter(random({5}, 1));
    const auto b = parameter(random({5}, 2));
    a.mutable_grad() = random({5}, 3);
    b.mutable_grad() = random({5}, 4);
    b.mutable_grad()[2] = poison;
    const auto before = a.grad().clone();
    EXPECT_FALSE(std::isfinite(clip_grad_norm({a, b}, 0.1).item<double>()));
    EXPECT_TRUE(torch::equal(a.grad(), before));
    EXPECT_EQ(b.grad()[0].item<double>(), random({5}, 4)[0].item<double>());
  }
}

TEST(ClipGradNorm, OfPiecesIsThatOfTheGradients) {
  const auto make = [] { return std::vector<Tensor>{random({5, 3}, 1), random({7}, 2)}; };
  auto whole = make(), pieces = make(), here = make();
  std::vector<Tensor> parameters = {parameter(torch::zeros({5, 3})), parameter(torch::zeros({7}))};
  for (size_t p = 0; p < whole.size(); ++p) parameters[p].mutable_grad() = whole[p];
  const Tensor norm = clip_grad_norm(parameters, 0.1);
  const Tensor second = pieces[1];
  pieces = {pieces[0], second.narrow(0, 0, 4), second.narrow(0, 4, 3)};
  EXPECT_CLOSE(clip_pieces(pieces, 0.1, torch::kCPU), norm, 1e-12);
  EXPECT_CLOSE(pieces[0], whole[0], 1e-12);
  EXPECT_CLOSE(second, whole[1], 1e-12);
  // Others have the second gradient, or both.
  const Tensor other = torch::linalg_vector_norm(here[1]);
  EXPECT_CLOSE(clip_pieces({here[0], {}}, 0.1, torch::kCPU, [&](Tensor& norms) { norms[1] += other; }), norm, 1e-12);
  EXPECT_CLOSE(here[0], whole[0], 1e-12);
  const auto both = [&](Tensor& norms) { norms[0] += 3, norms[1] += 4; };
  EXPECT_EQ(clip_pieces({{}, {}}, 0.1, torch::kCPU, both).item<double>(), 5);
}

TEST(ClipGradNorm, OfNoGradientIsZero) {
  EXPECT_EQ(clip_grad_norm({}, 1).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm({parameter(torch::zeros({3}))}, 1).item<double>(), 0);
  const auto zero = parameter(torch::zeros({3}));
  zero.mutable_grad() = torch::zeros({3});
  EXPECT_EQ(clip_grad_norm({zero}, 1).item<double>(), 0);
  EXPECT_TRUE(torch::equal(zero.grad(), torch::zeros({3})));
}

TEST(AllFinite, SeesEveryElementOfEveryType) {
  const auto finite = [](const std::vector<Tensor>& list) { return all_finite(list, torch::kCPU).item<bool>(); };
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kHalf}) {
    for (const double poison : {kNaN, kInfinity, -kInfinity}) {
      auto bad = torch::ones({40, 3}, type);
      EXPECT_TRUE(finite({bad, torch::zeros({0}), torch::ones({2})}));
      bad[39][2] = poison;
      EXPECT_FALSE(finite({torch::ones({2}), bad}));
    }
  }
  EXPECT_TRUE(finite({torch::full({4}, 3e38), torch::full({4}, -3e38)}));  // large, but finite
  EXPECT_TRUE(finite({torch::full({4}, 65504.0, torch::kHalf)}));
  EXPECT_TRUE(finite({}));
}

}  // namespace
}  // namespace prism::test
