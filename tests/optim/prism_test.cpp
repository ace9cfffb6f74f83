// PRISM against independent float64 oracles.

#include "tests/optim/oracles.h"

namespace prism::test {
namespace {

TEST(Prism, WithoutDampingIsMuonBitForBit) {
  for (const auto solver : {Solver::Gram, Solver::Stacked, Solver::Exact}) {
    NamedTensors damped;
    for (const auto& shape : kShapes)
      damped.emplace_back("w" + std::to_string(damped.size()), parameter(random(shape, 3, torch::kFloat32)));
    damped.emplace_back("twin", parameter(random({12, 5}, 4, torch::kFloat32)));
    const auto plain = copy_of(damped);
    Prism prism(damped, PrismOptions(0.02).gamma(0).solver(solver).weight_decay(0.1));
    Muon muon(plain, MuonOptions(0.02).solver(solver).weight_decay(0.1));
    for (int64_t t = 1; t <= 20; ++t) {
      set_gradients(damped, t);
      set_gradients(plain, t);
      prism.step();
      muon.step();
    }
    expect_equal_weights(damped, plain);
    expect_equal_state(state_of(prism), state_of(muon));
  }
}

TEST(Prism, KeepsOneMomentumBufferLikeMuon) {
  const NamedTensors parameters = {{"a", parameter(torch::zeros({8, 16}))},
                                   {"b", parameter(torch::zeros({8, 16}))},
                                   {"c", parameter(torch::zeros({16, 8}, torch::kBFloat16))}};
  const auto bytes = [](const Optimizer& optimizer) {
    int64_t sum = 0;
    for (const auto& [name, tensor] : optimizer.snapshot().tensors) {
      if (name != "skipped") sum += static_cast<int64_t>(tensor.nbytes());
    }
    return sum;
  };
  EXPECT_EQ(bytes(Prism(parameters, PrismOptions(0.02))), 3 * 128 * 4);
  EXPECT_EQ(bytes(Prism(parameters, PrismOptions(0.02))), bytes(Muon(parameters, MuonOptions(0.02))));
}

// On step 1 the zero-started momentum damps the polar factor by 1/√(1 + (γβ/(1−β))²), with Nesterov β² in place of β
// in the denominator: 0.0526 and 0.1021 for β = 0.95.
TEST(Prism, FirstStepIsDampedByTheFactorOfTheZeroStart) {
  for (const bool nesterov : {false, true}) {
    for (const auto& shape : kShapes) {
      const auto G = random(shape, 5);
      const auto W = parameter(torch::zeros(shape, torch::kFloat64));
      Prism prism(NamedTensors{{"w", W}},
                  PrismOptions(1).solver(Solver::Exact).nesterov(nesterov).scale(ScaleRule::None));
      W.mutable_grad() = G;
      prism.step();
      const double beta = 0.95;
      const double ratio = beta / (nesterov ? 1 - beta * beta : 1 - beta);
      const double factor = 1 / std::sqrt(1 + ratio * ratio);
      EXPECT_CLOSE(W, -factor * polar_by_svd(G), 1e-9);
    }
  }
}

TEST(Prism, FirstStepWithBiasCorrectionIsMuons) {
  for (const bool nesterov : {false, true}) {
    const auto G = random({9, 6}, 5);
    const auto W = parameter(torch::zeros({9, 6}, torch::kFloat64));
    Prism prism(NamedTensors{{"w", W}},
                PrismOptions(1).solver(Solver::Exact).nesterov(nesterov).bias_correction(true).scale(ScaleRule::None));
    W.mutable_grad() = G;
    prism.step();
    EXPECT_CLOSE(W, -polar_by_svd(G), 1e-6);  // D is rounding, not zero
  }
}

TEST(Prism, BiasCorrectionDividesTheMomentumBeforeInnovationAndNesterov) {
  constexpr double kBeta = 0.9;
  const auto W = parameter(random({9, 6}, 1));
  Prism prism(NamedTensors{{"w", W}},
              PrismOptions(0.1).momentum(kBeta).gamma(0.5).solver(Solver::Exact).bias_correction(true));
  Tensor expected = W.detach().clone();
  Tensor M = torch::zeros_like(expected);
  for (int64_t t = 1; t <= 6; ++t) {
    const auto G = random({9, 6}, 100 + static_cast<uint64_t>(t));
    W.mutable_grad() = G;
    prism.step();
    M = kBeta * M + (1 - kBeta) * G;
    const auto corrected = M / (1 - std::pow(kBeta, static_cast<double>(t)));
    expected =
        expected - 0.1 * moonlight(W) * stacked_oracle((1 - kBeta) * G + kBeta * corrected, G - corrected, 0.5, false);
    EXPECT_CLOSE(W, expected, 1e-7);
  }
}

TEST(Prism, FollowsTheStackedDefinitionOverTenSteps) {
  for (const auto& shape : kShapes) {
    for (const Side side : {Side::Short, Side::Left, Side::Right, Side::Long}) {
      for (const bool nesterov : {false, true}) {
        const auto W = parameter(random(shape, 1));
        Prism prism(NamedTensors{{"w", W}}, PrismOptions(0.1)
                                                .momentum(0.8)
                                                .gamma(0.7)
                                                .solver(Solver::Exact)
                                                .side(side)
                                                .nesterov(nesterov)
                                                .weight_decay(0.3));
        const bool wide = shape[0] < shape[1];
        const bool left = side == Side::Left || (side == Side::Short && wide) || (side == Side::Long && !wide);
        Replay run(W.detach());
        for (uint64_t t = 1; t <= 10; ++t) {
          W.mutable_grad() = random(shape, 100 + t);
          run.observe(W.grad(), 0.8, nesterov);
          prism.step();
          run.W = run.W * (1 - 0.1 * 0.3) - 0.1 * moonlight(W) * stacked_oracle(run.T, run.D, 0.7, left);
        }
        EXPECT_CLOSE(W, run.W, 1e-9) << W.sizes();
      }
    }
  }
}

TEST(Prism, GramAndStackedSolversRunTheSameIteration) {
  for (const auto& shape : kShapes) {
    for (const char* coefficients : {"jordan", "you", "polar_express", "minimax9", "converged"}) {
      std::vector<Tensor> results;
      for (const auto solver : {Solver::Gram, Solver::Stacked}) {
        const auto W = parameter(torch::zeros(shape, torch::kFloat64));
        Prism prism(NamedTensors{{"w", W}}, PrismOptions(0.1).solver(solver).coefficients(coefficients));
        for (uint64_t t = 1; t <= 3; ++t) {
          W.mutable_grad() = random(shape, 100 + t);
          prism.step();
        }
        results.push_back(W.detach());
      }
      EXPECT_CLOSE(results[0], results[1], 1e-7) << coefficients << results[0].sizes();
    }
  }
}

TEST(Prism, BothSidesFollowTheFourthRoots) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 7}, {6, 9}, {9, 6}, {3, 5}}) {
    const auto W = parameter(random(shape, 1));
    Prism prism(NamedTensors{{"w", W}},
                PrismOptions(0.1).momentum(0.8).gamma(0.7).solver(Solver::Exact).side(Side::Both));
    Replay run(W.detach());
    for (uint64_t t = 1; t <= 10; ++t) {
      W.mutable_grad() = random(shape, 100 + t);
      run.observe(W.grad(), 0.8, true);
      prism.step();
      const auto L = run.T.mm(run.T.mT()) + 0.49 * run.D.mm(run.D.mT());
      const auto R = run.T.mT().mm(run.T) + 0.49 * run.D.mT().mm(run.D);
      if (t == 1) {  // T and D are parallel, one of L and R is singular: take what the optimizer did
        run.W = W.detach().clone();
        continue;
      }
      run.W = run.W - 0.1 * moonlight(W) * inverse_power_by_eigh(L, 4).mm(run.T).mm(inverse_power_by_eigh(R, 4));
    }
    EXPECT_CLOSE(W, run.W, 1e-7) << W.sizes();
  }
}

TEST(Prism, AveragedCovarianceIsBiasCorrected) {  // Ĉ ← β₂Ĉ + (1−β₂)DᵀD
  constexpr double kBeta2 = 0.7;
  for (const bool left : {false, true}) {
    const std::vector<int64_t> shape = {8, 5};
    const auto W = parameter(random(shape, 1));
    Prism prism(NamedTensors{{"w", W}}, PrismOptions(0.1)
                                            .momentum(0.8)
                                            .gamma(0.7)
                                            .solver(Solver::Exact)
                                            .side(left ? Side::Left : Side::Right)
                                            .covariance(CovarianceKind::Ema)
                                            .covariance_beta(kBeta2));
    Replay run(W.detach());
    Tensor C = torch::zeros({left ? 8 : 5, left ? 8 : 5}, torch::kFloat64);
    for (int64_t t = 1; t <= 8; ++t) {
      W.mutable_grad() = random(shape, 100 + static_cast<uint64_t>(t));
      run.observe(W.grad(), 0.8, true);
      prism.step();
      C = kBeta2 * C + (1 - kBeta2) * (left ? run.D.mm(run.D.mT()) : run.D.mT().mm(run.D));
      const auto noise = 0.49 * C / (1 - std::pow(kBeta2, static_cast<double>(t)));
      if (left && t == 1) {  // rank 5 of 8
        run.W = W.detach().clone();
        continue;
      }
      const auto O = left ? inverse_power_by_eigh(run.T.mm(run.T.mT()) + noise, 2).mm(run.T)
                          : run.T.mm(inverse_power_by_eigh(run.T.mT().mm(run.T) + noise, 2));
      run.W = run.W - 0.1 * moonlight(W) * O;
    }
    EXPECT_CLOSE(W, run.W, 1e-7);
  }
}

// Each parameter refreshes its covariance at its steps 1, 4, 7, … by Ĉ ← β₂³Ĉ + (1−β₂³)DᵀD. The two parameters share a
// bucket, but one misses gradients, so their counts differ.
TEST(Prism, RefreshesTheCovarianceEveryFewStepsOfEachParameter) {
  constexpr double kBeta2 = 0.7;
  constexpr int64_t kEvery = 3;
  struct One {
    Tensor W, C = torch::zeros({5, 5}, torch::kFloat64);
    Replay run;
    int64_t steps = 0, refreshes = 0;
    explicit One(uint64_t seed) : W(parameter(random({8, 5}, seed))), run(W.detach()) {}
  };
  One ones[] = {One(1), One(2)};
  Prism prism(NamedTensors{{"a", ones[0].W}, {"b", ones[1].W}}, PrismOptions(0.1)
                                                                    .momentum(0.8)
                                                                    .gamma(0.7)
                                                                    .solver(Solver::Exact)
                                                                    .covariance(CovarianceKind::Ema)
                                                                    .covariance_beta(kBeta2)
                                                                    .covariance_every(kEvery));
  const double kept = std::pow(kBeta2, kEvery);
  for (int64_t t = 1; t <= 12; ++t) {
    for (size_t i = 0; i < 2; ++i) {
      auto& [W, C, run, steps, refreshes] = ones[i];
      W.mutable_grad() = Tensor();
      if (i == 1 && (t == 2 || t == 6)) continue;
      W.mutable_grad() = random({8, 5}, 100 * (i + 1) + static_cast<uint64_t>(t));
      run.observe(W.grad(), 0.8, true);
      if (steps++ % kEvery == 0) {
        C = kept * C + (1 - kept) * run.D.mT().mm(run.D);
        ++refreshes;
      }
      const auto noise = 0.49 * C / (1 - std::pow(kBeta2, static_cast<double>(kEvery * refreshes)));
      run.W = run.W - 0.1 * moonlight(W) * run.T.mm(inverse_power_by_eigh(run.T.mT().mm(run.T) + noise, 2));
    }
    prism.step();
    for (const auto& one : ones) EXPECT_CLOSE(one.W, one.run.W, 1e-7) << t;
  }
  EXPECT_EQ(ones[0].refreshes, 4);
  EXPECT_EQ(ones[1].steps, 10);
}

TEST(Prism, LeavesTheCovarianceAloneBetweenRefreshes) {
  for (const auto kind : {CovarianceKind::Ema, CovarianceKind::Sketch, CovarianceKind::Subspace}) {
    const NamedTensors parameters = {{"w", parameter(random({8, 5}, 1))}};
    Prism prism(parameters, with_covariance(kind, 3).covariance_every(4));
    std::vector<std::map<std::string, Tensor>> states;
    for (int64_t t = 1; t <= 5; ++t) {
      set_gradients(parameters, t);
      prism.step();
      states.push_back(state_of(prism));
    }
    const std::string key = kind == CovarianceKind::Ema ? "state.w.covariance" : "state.w.sketch";
    for (size_t t = 1; t < 4; ++t) EXPECT_TRUE(torch::equal(states[t].at(key), states[0].at(key))) << t;
    EXPECT_FALSE(torch::equal(states[4].at(key), states[0].at(key)));
  }
}

TEST(Prism, WhitensWideMatricesByARootThatIsRefreshedEveryFewSteps) {
  constexpr double kBeta2 = 0.9;
  const Tensor W = parameter(random({5, 8}, 1));
  Replay run(W.detach());
  Prism prism(NamedTensors{{"w", W}}, PrismOptions(0.1)
                                          .momentum(0.8)
                                          .gamma(0.7)
                                          .solver(Solver::Exact)
                                          .covariance(CovarianceKind::Ema)
                                          .covariance_beta(kBeta2)
                                          .side(Side::Whitened)
                                          .root_every(3));
  Tensor C = torch::zeros({8, 8}, torch::kFloat64), root;
  for (int64_t t = 1; t <= 8; ++t) {
    W.mutable_grad() = random({5, 8}, 100 + static_cast<uint64_t>(t));
    run.observe(W.grad(), 0.8, true);
    C = kBeta2 * C + (1 - kBeta2) * run.D.mT().mm(run.D);
    if (t % 3 == 1) {
      const auto [lambda, V] = torch::linalg_eigh(C / (1 - std::pow(kBeta2, static_cast<double>(t))), "L");
      // At first the covariance is singular, and zero eigenvalues map to zero.
      root = V.mul(lambda.rsqrt().masked_fill(lambda < 1e-12 * lambda.max(), 0)).mm(V.mT());
    }
    const Tensor X = run.T.mm(root);
    const Tensor I = torch::eye(5, torch::kFloat64);
    run.W = run.W - 0.1 * moonlight(W) * inverse_power_by_eigh(X.mm(X.mT()) + 0.49 * I, 2).mm(X);
    prism.step();
    EXPECT_CLOSE(W, run.W, 1e-7) << t;
  }
}

TEST(Prism, WhitenedIsTheSideOfTheInputsForMatricesThatAreNotWideAndForOtherCovariances) {
  const std::pair<CovarianceKind, std::vector<int64_t>> cases[] = {{CovarianceKind::Ema, {8, 5}},
                                                                   {CovarianceKind::Ema, {6, 6}},
                                                                   {CovarianceKind::Ema, {2, 9}},  // left
                                                                   {CovarianceKind::Instant, {5, 8}},
                                                                   {CovarianceKind::Sketch, {5, 8}}};
  for (const auto& [kind, shape] : cases) {
    const NamedTensors first = {{"w", parameter(random(shape, 3))}}, second = copy_of(first);
    Prism one(first, with_covariance(kind, 3).side(Side::Whitened));
    Prism two(second, with_covariance(kind, 3).side(Side::Inputs));
    for (int64_t t = 1; t <= 4; ++t) {
      set_gradients(first, t);
      set_gradients(second, t);
      one.step();
      two.step();
    }
    EXPECT_TRUE(torch::equal(first[0].second, second[0].second));
  }
}

// Expects two optimizers with the same float64 gradients to end at the same weights.
void expect_same_path(const PrismOptions& first_options, const PrismOptions& second_options, double tolerance) {
  NamedTensors first;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{8, 5}, {5, 8}, {6, 6}}) {
    first.emplace_back("w" + std::to_string(first.size()), parameter(random(shape, 3)));
  }
  const auto second = copy_of(first);
  Prism one(first, first_options);
  Prism two(second, second_options);
  for (int64_t t = 1; t <= 8; ++t) {
    set_gradients(first, t);
    set_gradients(second, t);
    one.step();
    two.step();
  }
  for (size_t i = 0; i < first.size(); ++i) EXPECT_CLOSE(first[i].second, second[i].second, tolerance) << i;
}

TEST(Prism, AverageWithoutMemoryIsTheInstantForm) {
  for (const Side side : {Side::Short, Side::Left, Side::Right, Side::Both, Side::Long}) {
    const auto options = PrismOptions(0.1).solver(Solver::Exact).side(side);
    expect_same_path(options, PrismOptions(options).covariance(CovarianceKind::Ema).covariance_beta(0), 1e-5);
  }
  expect_same_path(PrismOptions(0.1), PrismOptions(0.1).covariance(CovarianceKind::Ema).covariance_beta(0), 1e-9);
}

TEST(Prism, AveragedUpdatesAreAtMostOneWhereGradientsHaveLowRank) {  // in 16-bit state too
  for (const auto kind : {CovarianceKind::Ema, CovarianceKind::Sketch, CovarianceKind::Subspace}) {
    for (const auto side : {Side::Right, Side::Both}) {
      const auto W = parameter(torch::zeros({32, 24}));
      auto options = PrismOptions(1).weight_decay(0).scale(ScaleRule::None).side(side).solver(Solver::Exact);
      Prism optimizer(NamedTensors{{"w", W}}, options.covariance(kind).state_dtype(StateType::BFloat16));
      const Tensor left = random({32, 3}, 1, torch::kFloat32), right = random({3, 24}, 2, torch::kFloat32);
      for (uint64_t t = 0; t < 30; ++t) {
        W.mutable_grad() = (left * random({3}, 10 + t, torch::kFloat32)).mm(right);
        const Tensor before = W.detach().clone();
        optimizer.step();
        EXPECT_LT(torch::linalg_matrix_norm(W - before, 2).item<double>(), 1 + 1e-5) << "step " << t;
      }
    }
  }
}

TEST(Prism, SketchOfFullRankIsTheDenseAverage) {
  for (const Side side : {Side::Short, Side::Left, Side::Right}) {
    const auto options = PrismOptions(0.1).side(side).covariance_beta(0.9).rank(64);
    for (const auto kind : {CovarianceKind::Sketch, CovarianceKind::Subspace}) {
      expect_same_path(PrismOptions(options).covariance(CovarianceKind::Ema), PrismOptions(options).covariance(kind),
                       1e-8);
    }
  }
}

TEST(Prism, LeftOfAMatrixIsRightOfItsTranspose) {
  const auto W = parameter(random({9, 5}, 1));
  const auto V = parameter(W.detach().mT().contiguous());
  for (const auto kind :
       {CovarianceKind::Instant, CovarianceKind::Ema, CovarianceKind::Sketch, CovarianceKind::Subspace}) {
    const auto options = with_covariance(kind, 3);
    Prism left(NamedTensors{{"w", W}}, PrismOptions(options).side(Side::Left));
    Prism right(NamedTensors{{"w", V}}, PrismOptions(options).side(Side::Right));
    for (uint64_t t = 1; t <= 4; ++t) {
      W.mutable_grad() = random({9, 5}, 100 + t);
      V.mutable_grad() = W.grad().mT();
      left.step();
      right.step();
    }
    EXPECT_CLOSE(W, V.mT(), 1e-8);
  }
}

TEST(Prism, GammaFollowsItsSchedule) {
  const Schedule linear{.kind = ScheduleKind::Linear, .warmup = 0, .total = 4, .floor = 0, .decay = 0};
  for (const auto kind : {CovarianceKind::Instant, CovarianceKind::Ema}) {
    const auto scheduled = parameter(random({9, 5}, 1));
    const auto manual = parameter(scheduled.detach());
    const auto options = PrismOptions(0.1).covariance(kind);
    Prism first(NamedTensors{{"w", scheduled}}, PrismOptions(options).gamma(2).gamma_schedule(linear));
    Prism second(NamedTensors{{"w", manual}}, options);
    for (uint64_t t = 1; t <= 6; ++t) {
      scheduled.mutable_grad() = random({9, 5}, 100 + t);
      manual.mutable_grad() = scheduled.grad().clone();
      static_cast<PrismOptions&>(second.param_groups()[0].options())
          .gamma(t < 4 ? 2 * (1 - 0.25 * static_cast<double>(t)) : 0);
      first.step();
      second.step();
      EXPECT_CLOSE(scheduled, manual, 1e-9) << t;
    }
  }
}

TEST(Prism, SplitEqualsSeparateParameters) {
  const auto fused = NamedTensors{{"qkv", parameter(random({12, 6}, 1))}, {"other", parameter(random({4, 6}, 2))}};
  NamedTensors parts;
  int64_t begin = 0;
  for (const int64_t rows : {6, 2, 4}) {
    parts.emplace_back("p" + std::to_string(begin), parameter(fused[0].second.detach().narrow(0, begin, rows)));
    begin += rows;
  }
  for (const auto kind : {CovarianceKind::Instant, CovarianceKind::Ema}) {
    Prism first(NamedTensors{fused[0]}, PrismOptions(0.1).split({6, 2, 4}).covariance(kind).weight_decay(0.1));
    Prism second(parts, PrismOptions(0.1).covariance(kind).weight_decay(0.1));
    for (uint64_t t = 1; t <= 4; ++t) {
      fused[0].second.mutable_grad() = random({12, 6}, 100 + t);
      begin = 0;
      for (const auto& [name, tensor] : parts) {
        tensor.mutable_grad() = fused[0].second.grad().narrow(0, begin, tensor.size(0)).clone();
        begin += tensor.size(0);
      }
      first.step();
      second.step();
    }
    EXPECT_CLOSE(fused[0].second, torch::cat({parts[0].second, parts[1].second, parts[2].second}), 1e-12);
    EXPECT_TRUE(state_of(first).count("state.qkv.split.2.momentum"));
  }
}

// On the CPU, matrices are stepped one by one, in parallel if there are enough of them.
TEST(Prism, OnTheCpuStepsMatricesAsABucketDoes) {
  constexpr int64_t kCount = 12;
  const auto options = make_options("prism", {{"coefficients", "minimax9"}, {"covariance", "ema"}});
  const auto gradient = [](int64_t t, int64_t i) { return random({96, 72}, 100 * t + i, torch::kFloat32); };
  std::vector<Tensor> expected;
  std::vector<std::string> names;
  for (int64_t i = 0; i < kCount; ++i) expected.push_back(random({96, 72}, i, torch::kFloat32));
  for (int64_t i = 0; i < kCount; ++i) names.push_back("w" + std::to_string(i));
  NamedTensors alone, together;
  for (int64_t i = 0; i < kCount; ++i) {
    alone.emplace_back(names[i], parameter(expected[i]));
    together.emplace_back(names[i], parameter(expected[i]));
  }
  auto buckets = make_buckets(*options, expected, names);
  ASSERT_EQ(buckets.size(), 1u);
  const auto steps = [&](const NamedTensors& weights, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto optimizer = make_optimizer("prism", weights, options->to_json());
    for (int64_t t = 1; t <= 3; ++t) {
      for (int64_t i = 0; i < kCount; ++i) weights[i].second.mutable_grad() = gradient(t, i);
      if (t == 2) weights[5].second.mutable_grad() = Tensor();
      optimizer->step();
    }
    at::set_num_threads(before);
  };
  steps(alone, 1);
  steps(together, 3);
  expect_equal_weights(together, alone);
  for (int64_t t = 1; t <= 3; ++t) {
    std::vector<Tensor> gradients;
    for (int64_t i = 0; i < kCount; ++i) gradients.push_back(t == 2 && i == 5 ? Tensor() : gradient(t, i));
    step_bucket(*options, buckets[0], expected, gradients, {.lr = torch::tensor(options->lr(), torch::kFloat64)});
  }
  for (int64_t i = 0; i < kCount; ++i) EXPECT_SAME(alone[i].second.detach(), expected[i]) << i;
}

}  // namespace
}  // namespace prism::test
