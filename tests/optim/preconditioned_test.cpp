// Shampoo, SOAP and the methods of Carlson et al. against short independent references in float64.

#include <cmath>

#include "prism/linalg/eigenbasis.h"
#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

Tensor power_by_eigh(const Tensor& A, double power) {
  const auto [lambda, V] = torch::linalg_eigh(A);
  const auto kept = lambda.gt(1e-13 * lambda.max());
  return torch::matmul(V * torch::where(kept, lambda.abs().pow(power), torch::zeros_like(lambda)), V.mT());
}

Tensor sharp_by_svd(const Tensor& X) { return torch::linalg_svdvals(X).sum() * polar_by_svd(X); }

// Compares the optimizer with `expected`, which returns the update for a gradient and step. Weights decay from step
// `first_decay` on.
template <class Class, class O>
void expect_updates(const O& options, const std::vector<int64_t>& shape, double tolerance,
                    const std::function<Tensor(const Tensor& G, int64_t t)>& expected, int64_t first_decay = 1) {
  const auto W = parameter(random(shape, 1));
  Tensor reference = W.detach().clone();
  Class optimizer(NamedTensors{{"w", W}}, options);
  for (int64_t t = 1; t <= 12; ++t) {
    W.mutable_grad() = random(shape, 100 + static_cast<uint64_t>(t));
    optimizer.step();
    if (t >= first_decay) reference = reference * (1 - options.lr() * options.weight_decay());
    reference = reference - options.lr() * expected(W.grad(), t);
    EXPECT_CLOSE(W, reference, tolerance) << "step " << t;
  }
}

TEST(Shampoo, WithoutMemoryIsThePolarFactor) {  // (GGᵀ)^(−1/4) G (GᵀG)^(−1/4) = UVᵀ
  const auto polar = [](const Tensor& G, int64_t) { return polar_by_svd(G); };
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6, 6}, {9, 5}, {5, 9}, {1, 4}, {4, 1}}) {
    expect_updates<Shampoo>(ShampooOptions(0.1).beta(0).solver(Solver::Exact), shape, 1e-7, polar);
    if (shape[0] != shape[1]) expect_updates<Shampoo>(ShampooOptions(0.1).beta(0), shape, 1e-3, polar);
  }
}

TEST(Shampoo, SumsOrAveragesItsStatistics) {
  for (const double beta : {1.0, 0.9}) {
    for (const Solver solver : {Solver::Exact, Solver::Gram}) {
      Tensor L = torch::zeros({7, 7}, torch::kFloat64);
      Tensor R = torch::zeros({5, 5}, torch::kFloat64);
      const auto update = [&](const Tensor& G, int64_t) {
        L = beta * L + (beta == 1 ? 1 : 1 - beta) * G.mm(G.mT());
        R = beta * R + (beta == 1 ? 1 : 1 - beta) * G.mT().mm(G);
        return power_by_eigh(L, -0.25).mm(G).mm(power_by_eigh(R, -0.25));
      };
      expect_updates<Shampoo>(ShampooOptions(0.1).beta(beta).solver(solver).weight_decay(0.2), {7, 5},
                              solver == Solver::Exact ? 1e-9 : 1e-3, update);
    }
  }
}

struct SoapReference {
  double beta1 = 0.9;
  double beta2 = 0.8;
  double shampoo_beta = 0.7;
  double eps = 1e-8;
  int64_t refresh = 3;
  Tensor L, R, P, Q, M, v;

  // Returns the order of the basis columns by Rayleigh quotient, largest first.
  static Tensor order_of(const Tensor& A, const Tensor& basis) {
    return basis.mT().mm(A).mm(basis).diagonal().argsort(0, /*descending=*/true);
  }

  // Returns the basis after one QR power step, with the signs of the previous basis.
  static Tensor refreshed(const Tensor& A, const Tensor& basis) {
    const Tensor next = std::get<0>(torch::linalg_qr(A.mm(basis)));
    return next * torch::sign((next * basis).sum(0, true));
  }

  // The first step only makes the basis; Adam counts from the second.
  Tensor operator()(const Tensor& G, int64_t step) {
    const int64_t t = step - 1;
    Tensor U = torch::zeros_like(G);
    if (t == 0) {
      L = torch::zeros({G.size(0), G.size(0)}, torch::kFloat64);
      R = torch::zeros({G.size(1), G.size(1)}, torch::kFloat64);
      M = torch::zeros_like(G);
      v = torch::zeros_like(G);
    } else {
      M = beta1 * M + (1 - beta1) * G;
      v = beta2 * v + (1 - beta2) * P.mT().mm(G).mm(Q).square();
      const auto time = static_cast<double>(t);
      const auto first = P.mT().mm(M).mm(Q) / (1 - std::pow(beta1, time));
      const auto second = (v / (1 - std::pow(beta2, time))).sqrt() + eps;
      U = P.mm(first / second).mm(Q.mT());
    }
    L = shampoo_beta * L + (1 - shampoo_beta) * G.mm(G.mT());
    R = shampoo_beta * R + (1 - shampoo_beta) * G.mT().mm(G);
    if (t == 0) {
      P = std::get<1>(torch::linalg_eigh(L)).flip(1);
      Q = std::get<1>(torch::linalg_eigh(R)).flip(1);
    } else if (t % refresh == 0) {
      const Tensor rows = order_of(L, P);
      const Tensor columns = order_of(R, Q);
      v = v.index_select(0, rows).index_select(1, columns);
      P = refreshed(L, P.index_select(1, rows));
      Q = refreshed(R, Q.index_select(1, columns));
    }
    return U;
  }
};

TEST(SOAP, IsAdamInTheEigenbasisOfShampoo) {
  SoapReference reference;
  const auto options = SOAPOptions(0.1).betas({0.9, 0.8}).shampoo_beta(0.7).refresh(3).weight_decay(0.2);
  expect_updates<SOAP>(
      options, {5, 5}, 1e-6, [&](const Tensor& G, int64_t t) { return reference(G, t); }, /*first_decay=*/2);
}

TEST(SOAP, KeepsItsStepsBoundedWhereGradientsHaveLowRank) {  // in 16-bit state too: M must stay wide
  for (const auto type : {StateType::Float32, StateType::BFloat16}) {
    const auto W = parameter(torch::zeros({24, 16}));
    SOAP optimizer(NamedTensors{{"w", W}}, SOAPOptions(1).weight_decay(0).state_dtype(type));
    const Tensor left = random({24, 3}, 1, torch::kFloat32), right = random({3, 16}, 2, torch::kFloat32);
    for (uint64_t t = 0; t < 40; ++t) {
      W.mutable_grad() = (left * random({3}, 10 + t, torch::kFloat32)).mm(right);
      const Tensor before = W.detach().clone();
      optimizer.step();
      EXPECT_LT((W - before).abs().max().item<double>(), 50)
          << "step " << t;  // Adam's are near 1 in each of 24 directions
    }
  }
}

TEST(SOAP, EachParameterOfABucketRefreshesAtItsOwnStep) {
  const auto late = NamedTensors{{"a", parameter(random({5, 5}, 1))}, {"b", parameter(random({5, 5}, 2))}};
  const auto alone = NamedTensors{{"b", parameter(late[1].second.detach())}};
  SOAP together(late, SOAPOptions(0.1).refresh(3));
  SOAP single(alone, SOAPOptions(0.1).refresh(3));
  for (int64_t t = 1; t <= 9; ++t) {
    set_gradients(late, t);
    if (t <= 2) late[1].second.mutable_grad() = Tensor();
    together.step();
    if (t <= 2) continue;
    set_gradients(alone, t);
    single.step();
  }
  EXPECT_CLOSE(late[1].second, alone[0].second, 1e-9);
}

TEST(SOAP, ARefreshKeepsTheMomentumInPlace) {  // with β₁ near 1 the direction cannot jump when the basis turns
  const auto options = SOAPOptions().betas({0.9, 0.9}).refresh(2);
  State state;
  for (const auto& field : options.fields({6, 4})) {
    std::vector<int64_t> shape = {1};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    state.add(field.name, torch::zeros(shape, field.storage == Storage::Counter ? torch::kFloat32 : torch::kFloat64));
  }
  Tensor M = torch::zeros({1, 6, 4}, torch::kFloat64);
  for (uint64_t t = 0; t <= 6; ++t) {
    const auto gradient = random({1, 6, 4}, 10 + t);
    options.direction(options.operands(gradient, state), state);
    if (t > 0) M = 0.9 * M + 0.1 * gradient;
    EXPECT_CLOSE(state["exp_avg"], M, 1e-12);
    EXPECT_CLOSE(state["P"].mT().matmul(state["P"])[0], torch::eye(6, torch::kFloat64), 1e-10);
    EXPECT_CLOSE(state["Q"].mT().matmul(state["Q"])[0], torch::eye(4, torch::kFloat64), 1e-10);
  }
}

TEST(SSD, StepsAlongThePolarFactorAsFarAsTheNuclearNorm) {
  const auto update = [](const Tensor& G, int64_t) { return sharp_by_svd(G); };
  for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 5}, {5, 7}}) {
    expect_updates<SSD>(SSDOptions(0.1).solver(Solver::Exact).weight_decay(0.2), shape, 1e-9, update);
    expect_updates<SSD>(SSDOptions(0.1), shape, 1e-2, update);
  }
}

TEST(RMSspectral, IsSharpDescentInScaledCoordinates) {
  Tensor v = torch::zeros({7, 5}, torch::kFloat64);
  const auto update = [&](const Tensor& G, int64_t) {
    v = 0.9 * v + 0.1 * G.square();
    const auto d = (v.sqrt() + 1e-4).sqrt();
    return sharp_by_svd(G / d) / d;
  };
  expect_updates<RMSspectral>(RMSspectralOptions(0.1).beta(0.9).eps(1e-4).solver(Solver::Exact), {7, 5}, 1e-9, update);
}

TEST(ADAspectral, SumsWhereRMSspectralAverages) {
  Tensor v = torch::zeros({7, 5}, torch::kFloat64);
  const auto update = [&](const Tensor& G, int64_t) {
    v = v + G.square();
    const auto d = (v.sqrt() + 1e-4).sqrt();
    return sharp_by_svd(G / d) / d;
  };
  expect_updates<ADAspectral>(ADAspectralOptions(0.1).eps(1e-4).solver(Solver::Exact), {7, 5}, 1e-9, update);
}

TEST(AdamW, WithoutMemoryIsSignDescent) {  // β₁ = β₂ = ε = 0
  const auto sign = [](const Tensor& G, int64_t) { return G.sign(); };
  expect_updates<AdamW>(AdamWOptions(0.1).betas({0, 0}).eps(0), {6, 4}, 1e-12, sign);
}

TEST(RMSprop, StaysFiniteWhenACenteredVarianceVanishes) {  // a constant gradient: v − g² is rounding, of either sign
  const auto W = parameter(torch::zeros({64}));
  RMSprop optimizer(NamedTensors{{"w", W}}, RMSpropOptions(1e-3).alpha(0.5).centered(true));
  W.mutable_grad() = random({64}, 1, torch::kFloat32);
  for (int64_t t = 0; t < 60; ++t) optimizer.step();
  expect_finite({{"w", W}});
}

}  // namespace
}  // namespace prism::test
