// Options of PRISM, Muon and Tikhonov Muon against float64 oracles: folds, scales, γ, damping, normalized rows, fixed norms and spectra.

#include <cmath>

#include "tests/optim/oracles.h"

namespace prism::test {
namespace {

// Expects a parameter of more dimensions to be trained like the given matrix.
void expect_as_matrix(const Tensor& value, const Tensor& matrix, const PrismOptions& options) {
  const auto W = parameter(value);
  const auto X = parameter(matrix.contiguous());
  Prism first(NamedTensors{{"w", W}}, options);
  Prism second(NamedTensors{{"w", X}}, PrismOptions(options).fold(Fold::Auto));
  for (uint64_t t = 1; t <= 3; ++t) {
    const auto G = random(W.sizes(), 100 + t);
    W.mutable_grad() = torch::empty_like(W).copy_(G);  // in the parameter's memory format
    X.mutable_grad() = G.reshape(X.sizes());
    first.step();
    second.step();
  }
  EXPECT_CLOSE(W.reshape(X.sizes()), X, 1e-12);
}

TEST(Fold, FlattensConvolutionsInAnyMemoryFormat) {
  const auto kernel = random({6, 3, 2, 5}, 1);
  expect_as_matrix(kernel, kernel.reshape({6, 30}), PrismOptions(0.1));
  expect_as_matrix(kernel.contiguous(torch::MemoryFormat::ChannelsLast), kernel.reshape({6, 30}), PrismOptions(0.1));
  const auto kernel1d = random({6, 3, 5}, 1);
  expect_as_matrix(kernel1d, kernel1d.reshape({6, 15}), PrismOptions(0.1).fold(Fold::Flatten));
}

TEST(Fold, TakesThreeDimensionsAsABatch) {
  const auto experts = parameter(random({3, 6, 4}, 1));
  NamedTensors separate;
  for (int64_t e = 0; e < 3; ++e) separate.emplace_back("e" + std::to_string(e), parameter(experts.detach()[e]));
  for (const auto kind :
       {CovarianceKind::Instant, CovarianceKind::Ema, CovarianceKind::Sketch, CovarianceKind::Subspace}) {
    Prism first(NamedTensors{{"experts", experts}}, with_covariance(kind, 2));
    Prism second(separate, with_covariance(kind, 2));
    for (uint64_t t = 1; t <= 3; ++t) {
      experts.mutable_grad() = random({3, 6, 4}, 100 + t);
      for (int64_t e = 0; e < 3; ++e)
        separate[static_cast<size_t>(e)].second.mutable_grad() = experts.grad()[e].clone();
      first.step();
      second.step();
    }
    for (int64_t e = 0; e < 3; ++e) EXPECT_CLOSE(experts[e], separate[static_cast<size_t>(e)].second, 1e-9);
  }
}

TEST(Fold, SplitsTheRowsOfEachExpert) {
  const auto experts = parameter(random({3, 6, 4}, 1));
  const auto upper = parameter(experts.detach().narrow(1, 0, 2));
  Prism first(NamedTensors{{"experts", experts}}, PrismOptions(0.1).split({2, 4}));
  Prism second(NamedTensors{{"upper", upper}}, PrismOptions(0.1));
  experts.mutable_grad() = random({3, 6, 4}, 100);
  upper.mutable_grad() = experts.grad().narrow(1, 0, 2).clone();
  first.step();
  second.step();
  EXPECT_CLOSE(experts.narrow(1, 0, 2), upper, 1e-12);
}

TEST(ScaleRules, SeeTheMatrixThatIsShaped) {
  EXPECT_DOUBLE_EQ(scale_factor(ScaleRule::Moonlight, {4, 9}), 0.6);
  EXPECT_DOUBLE_EQ(scale_factor(ScaleRule::Moonlight, {3, 25, 9}), 1.0);
  EXPECT_DOUBLE_EQ(scale_factor(ScaleRule::Spectral, {16, 4}), 2);
  EXPECT_DOUBLE_EQ(scale_factor(ScaleRule::Spectral, {4, 16}), 1);
  EXPECT_DOUBLE_EQ(scale_factor(ScaleRule::None, {4, 16}), 1);
  const auto kernel = parameter(torch::zeros({4, 3, 3, 3}, torch::kFloat64));  // (4, 27), not (4, 3)
  Muon muon(NamedTensors{{"w", kernel}}, MuonOptions(1).solver(Solver::Exact));
  kernel.mutable_grad() = random({4, 3, 3, 3}, 1);
  muon.step();
  EXPECT_NEAR(kernel.reshape({4, 27}).norm().item<double>(), 0.2 * std::sqrt(27.0) * 2, 1e-9);
}

// γ² at which γ²DᵀD is, on average, the noise left in T, for independent gradients: for β = 0.95 about 1/36, with
// Nesterov 1/30 (docs/optimizers.md).
double natural_gamma_squared(double beta, bool nesterov) {
  const double M = (1 - beta) / (1 + beta), D = 2 * beta * beta / (1 + beta);  // of the gradient's noise
  return nesterov ? (std::pow(1 - beta * beta, 2) + std::pow(beta, 4) * M) / D : M / D;
}

TEST(NaturalGamma, IsTheNoiseOfTheOperandOverThatOfTheInnovation) {
  const auto color = random({6, 6}, 1);  // noise of another strength in every direction
  for (const bool nesterov : {false, true}) {
    for (const double beta : {0.8, 0.95}) {
      const Momentum momentum{.beta = beta, .nesterov = nesterov};
      MomentumState state{torch::zeros({1, 8, 6}, torch::kFloat64), {}, {}};
      Tensor TT = torch::zeros({6, 6}, torch::kFloat64), DD = TT.clone();
      torch::manual_seed(2);
      for (int64_t t = 1; t <= 8000; ++t) {
        const Tensor G = torch::randn({1, 8, 6}, torch::kFloat64).matmul(color);
        const Signal signal = advance(G, state, momentum);
        if (t <= 200) continue;  // the momentum fills
        const Tensor D = G - signal.M;
        TT += signal.T[0].mT().mm(signal.T[0]);
        DD += D[0].mT().mm(D[0]);
      }
      EXPECT_CLOSE(TT, natural_gamma_squared(beta, nesterov) * DD, 0.05) << beta << nesterov;
    }
  }
}

TEST(NaturalGamma, HalvesTheEnergyOfPureNoise) {
  const double gamma = std::sqrt(natural_gamma_squared(0.95, true));
  for (const auto& [damping, energy] :
       std::vector<std::pair<double, double>>{{gamma, 0.5}, {1, gamma * gamma / (1 + gamma * gamma)}}) {
    const NamedTensors parameters = {{"w", parameter(torch::zeros({256, 6}, torch::kFloat64))}};
    Prism prism(parameters, PrismOptions(0.1).gamma(damping).solver(Solver::Exact).covariance(CovarianceKind::Ema));
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = 1; t <= 400; ++t) {
      set_gradients(parameters, t);
      prism.step();
      if (t < 100 || t % 50 != 0) continue;  // steps that have little in common
      sum += prism.spectra().front().spectrum.gain.square().mean().item<double>();
      ++count;
    }
    EXPECT_NEAR(sum / static_cast<double>(count), energy, 0.1 * energy) << damping;
  }
}

TEST(Spectra, FollowTheGainLawWithTheExactSolver) {
  for (const auto kind : {CovarianceKind::Instant, CovarianceKind::Ema}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{8, 5}, {5, 8}}) {
      const auto W = parameter(random(shape, 1));
      Prism prism(NamedTensors{{"w", W}},
                  PrismOptions(0.1).gamma(0.7).solver(Solver::Exact).covariance(kind).scale(ScaleRule::None));
      Tensor before;
      for (uint64_t t = 1; t <= 4; ++t) {
        W.mutable_grad() = random(shape, 100 + t);
        before = W.detach().clone();
        prism.step();
      }
      const auto spectra = prism.spectra();
      ASSERT_EQ(spectra.size(), 1);
      const auto& [name, spectrum, weight_norm, update_norm] = spectra[0];
      EXPECT_EQ(name, "w");
      EXPECT_CLOSE(spectrum.gain, spectrum.theory, 1e-8);
      EXPECT_CLOSE(spectrum.theory, (1 + 0.49 / spectrum.snr.square()).rsqrt(), 1e-9);
      EXPECT_CLOSE(weight_norm, W.norm(), 1e-12);
      EXPECT_CLOSE(update_norm, (W.detach() - before).norm() / 0.1, 1e-7);
    }
  }
}

TEST(Spectra, ReportTheSingularValuesOfMuonsMomentum) {
  const auto W = parameter(random({8, 5}, 1));
  Muon muon(NamedTensors{{"w", W}}, MuonOptions(0.1).solver(Solver::Exact).nesterov(false));
  W.mutable_grad() = random({8, 5}, 100);
  muon.step();
  const auto spectra = muon.spectra();
  EXPECT_CLOSE(spectra.at(0).spectrum.singular_values, torch::linalg_svdvals(0.05 * W.grad()), 1e-12);
  EXPECT_CLOSE(spectra.at(0).spectrum.gain, torch::ones({5}, torch::kFloat64), 1e-9);
}

TEST(Spectra, LeaveGammaOutOfTheSnrWhateverItsSchedule) {
  const Schedule linear{.kind = ScheduleKind::Linear, .warmup = 0, .total = 2, .floor = 0, .decay = 0};
  for (const auto kind : {CovarianceKind::Instant, CovarianceKind::Ema}) {
    const auto W = parameter(random({8, 5}, 1));
    Prism prism(NamedTensors{{"w", W}},
                PrismOptions(0.1).gamma(2).gamma_schedule(linear).covariance(kind).solver(Solver::Exact));
    for (uint64_t t = 1; t <= 2; ++t) {  // γ_t = 1, then 0
      W.mutable_grad() = random({8, 5}, 100 + t);
      prism.step();
      const auto spectrum = prism.spectra().at(0).spectrum;
      EXPECT_CLOSE(spectrum.gain, (1 + (t == 1 ? 1.0 : 0.0) / spectrum.snr.square()).rsqrt(), 1e-8) << t;
      EXPECT_TRUE(spectrum.snr.isfinite().all().item<bool>()) << t;
    }
  }
}

TEST(TikhonovMuon, TakesThePapersAbsoluteDamping) {  // M (MᵀM + λI)^(−1/2), σ/√(σ² + λ)
  constexpr double kLambda = 0.3;
  for (const auto& shape : kShapes) {
    const auto W = parameter(random(shape, 1));
    TikhonovMuon optimizer(
        NamedTensors{{"w", W}},
        TikhonovMuonOptions(0.1).momentum(0.8).nesterov(false).solver(Solver::Exact).damping_absolute(kLambda));
    Replay run(W.detach());
    for (uint64_t t = 1; t <= 4; ++t) {
      W.mutable_grad() = random(shape, 100 + t) * std::pow(10., static_cast<double>(t) - 2);
      run.observe(W.grad(), 0.8, false);
      optimizer.step();
      const auto [U, S, Vh] = torch::linalg_svd(run.M, /*full_matrices=*/false);
      run.W = run.W - 0.1 * moonlight(W) * torch::matmul(U * (S / (S.square() + kLambda).sqrt()), Vh);
      EXPECT_CLOSE(W, run.W, 1e-9) << W.sizes() << t;
    }
  }
}

// NorMuon, element by element: v ← β₂v + (1−β₂)·mean of O² along the row, O/√v, rescaled to ‖O‖_F.
TEST(Normalize, DividesRowsByTheRootMeanOfTheirSquares) {
  constexpr double kBeta2 = 0.6;
  for (const double gamma : {0.0, 0.7}) {
    for (const auto& shape : kShapes) {
      const auto start = random(shape, 1);
      const auto W = parameter(start);
      const NamedTensors parameters = {{"w", W}};
      std::unique_ptr<Optimizer> optimizer;
      if (gamma == 0)
        optimizer = std::make_unique<Muon>(
            parameters,
            MuonOptions(0.1).momentum(0.8).solver(Solver::Exact).normalize(Normalize::Rows).row_beta(kBeta2));
      else
        optimizer = std::make_unique<Prism>(parameters, PrismOptions(0.1)
                                                            .momentum(0.8)
                                                            .gamma(gamma)
                                                            .solver(Solver::Exact)
                                                            .normalize(Normalize::Rows)
                                                            .row_beta(kBeta2));
      Replay run(start);
      std::vector<double> v(shape[0], 0.);
      for (uint64_t t = 1; t <= 5; ++t) {
        W.mutable_grad() = random(shape, 100 + t);
        run.observe(W.grad(), 0.8, true);
        optimizer->step();
        Tensor O = stacked_oracle(run.T, run.D, gamma, shape[0] < shape[1]).contiguous();
        const double before = O.norm().item<double>();
        auto rows = O.accessor<double, 2>();
        for (int64_t i = 0; i < shape[0]; ++i) {
          double mean = 0;
          for (int64_t j = 0; j < shape[1]; ++j) mean += rows[i][j] * rows[i][j] / static_cast<double>(shape[1]);
          v[i] = kBeta2 * v[i] + (1 - kBeta2) * mean;
          for (int64_t j = 0; j < shape[1]; ++j) rows[i][j] /= std::sqrt(v[i]);
        }
        run.W = run.W - 0.1 * moonlight(W) * O * (before / O.norm().item<double>());
        EXPECT_CLOSE(W, run.W, 1e-9) << W.sizes() << t;
      }
      const auto state = state_of(*optimizer).at("state.w.row_moment");
      EXPECT_CLOSE(state.flatten(), torch::tensor(v, torch::kFloat64), 1e-9);
    }
  }
}

TEST(FixedNorm, GivesEveryUpdateTheNormOfAnOrthogonalOne) {  // ‖O‖_F = √min(m, n), and nothing else changes
  for (const auto normalize : {Normalize::None, Normalize::Rows}) {
    for (const auto& shape : kShapes) {
      const auto start = random(shape, 1);
      const auto W = parameter(start), V = parameter(start);
      const auto options = PrismOptions(0.1).gamma(2).scale(ScaleRule::None).normalize(normalize);
      Prism fixed(NamedTensors{{"w", W}}, PrismOptions(options).fixed_norm(true));
      Prism free(NamedTensors{{"w", V}}, options);
      for (uint64_t t = 1; t <= 3; ++t) {
        const Tensor before = W.detach().clone(), other = V.detach().clone();
        W.mutable_grad() = random(shape, 100 + t);
        V.mutable_grad() = W.grad().clone();
        fixed.step();
        free.step();
        const Tensor O = (before - W.detach()) / 0.1, wanted = (other - V.detach()) / 0.1;
        const double norm = std::sqrt(static_cast<double>(std::min(shape[0], shape[1])));
        EXPECT_NEAR(O.norm().item<double>(), norm, 1e-9);
        EXPECT_CLOSE(O, wanted * (norm / wanted.norm()), 1e-9) << W.sizes() << t;
        EXPECT_LT(wanted.norm().item<double>(), 0.9 * norm);  // γ shrinks the update
      }
    }
  }
}

TEST(FixedNorm, LeavesTheExactPolarFactorAndZeroAsTheyAre) {
  const auto start = random({6, 4}, 1);
  const auto W = parameter(start), V = parameter(start);
  Muon fixed(NamedTensors{{"w", W}}, MuonOptions(0.1).solver(Solver::Exact).fixed_norm(true));
  Muon plain(NamedTensors{{"w", V}}, MuonOptions(0.1).solver(Solver::Exact));
  W.mutable_grad() = torch::zeros_like(W);
  fixed.step();
  EXPECT_TRUE(torch::equal(W.detach(), start));
  W.mutable_grad() = random({6, 4}, 2);
  V.mutable_grad() = W.grad().clone();
  fixed.step();
  plain.step();
  EXPECT_CLOSE(W, V, 1e-12);
}

TEST(Normalize, KeepsRowsOfZerosAndTheNormOfTheUpdate) {
  const auto start = random({6, 4}, 1);
  const auto W = parameter(start), V = parameter(start);
  Muon rows(NamedTensors{{"w", W}}, MuonOptions(0.1).normalize(Normalize::Rows));
  Muon plain(NamedTensors{{"w", V}}, MuonOptions(0.1));
  for (uint64_t t = 1; t <= 3; ++t) {
    const Tensor before = W.detach().clone(), other = V.detach().clone();
    W.mutable_grad() = random({6, 4}, 100 + t);
    W.mutable_grad()[2].zero_();
    V.mutable_grad() = W.grad().clone();
    rows.step();
    plain.step();
    EXPECT_TRUE(torch::equal(W.detach()[2], start[2]));
    EXPECT_NEAR((W - before).norm().item<double>(), (V - other).norm().item<double>(), 1e-12);
    EXPECT_FALSE(torch::allclose(W - before, V - other));
  }
}

TEST(TikhonovMuon, DampsEverySingularValueAlike) {  // σ/√(σ² + δ), δ = damping · mean σ²
  for (const auto& shape : std::vector<std::vector<int64_t>>{{9, 5}, {5, 9}}) {
    const auto W = parameter(torch::zeros(shape, torch::kFloat64));
    TikhonovMuon optimizer(
        NamedTensors{{"w", W}},
        TikhonovMuonOptions(1).damping(0.3).momentum(0).solver(Solver::Exact).scale(ScaleRule::None));
    W.mutable_grad() = random(shape, 7);
    optimizer.step();
    const auto [U, S, Vh] = torch::linalg_svd(W.grad(), false);
    const auto shaped = S / (S.square() + 0.3 * S.square().mean()).sqrt();
    EXPECT_CLOSE(W, -torch::matmul(U * shaped, Vh), 1e-9);
  }
}

}  // namespace
}  // namespace prism::test
