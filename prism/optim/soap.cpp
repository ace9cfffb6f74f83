#include "prism/optim/soap.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>

#include "prism/linalg/eigenbasis.h"

namespace prism {
namespace {

struct SOAPState {
  Tensor step;        // (B): t
  Tensor M, v;        // (B, …, m, n)
  Tensor L, R, P, Q;  // (B, …, m, m) and (B, …, n, n)
};

// Computes the basis of A for the entries of the bucket where `first` or `due` is true: by eigh at their first step,
// then by one power step from the previous basis. A power step converges column by column in their order, so the
// columns are sorted first, as the authors do. v is sorted along `side`, the dimension that belongs to this basis.
void refresh_basis(Tensor& basis, const Tensor& A, Tensor& v, int64_t side, const Tensor& first, const Tensor& due) {
  if (const Tensor index = first.nonzero().squeeze(-1); index.numel() > 0)
    basis.index_copy_(0, index, eigenbasis(A.index_select(0, index)));
  const Tensor index = due.nonzero().squeeze(-1);
  if (index.numel() == 0) return;
  const Tensor part = A.index_select(0, index);
  const Tensor old = basis.index_select(0, index);
  const Tensor moments = v.index_select(0, index);
  const Tensor eigenvalues = old.mul(part.matmul(old)).sum(-2);  // qᵀAq
  const Tensor order = eigenvalues.argsort(/*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const auto sorted = [&](const Tensor& X, int64_t dim) {
    return X.gather(dim, order.unsqueeze(dim == -1 ? -2 : -1).expand_as(X));
  };
  basis.index_copy_(0, index, eigenbasis_step(part, sorted(old, -1)));
  v.index_copy_(0, index, sorted(moments, side));
}

}  // namespace

Operands SOAPOptions::operands(const Tensor& G, State& state) const {
  state["step"].add_(1);
  return {G};
}

Tensor SOAPOptions::direction(const Operands& operands, State& all) const {
  const Tensor& G = operands.T;
  SOAPState state{all["step"] - 1, all["exp_avg"], all["exp_avg_sq"], all["L"], all["R"], all["P"], all["Q"]};
  const auto [beta1, beta2] = betas();
  const Tensor first = state.step.eq(0);
  const Tensor t = per_entry(state.step, G).to(at::kDouble);
  const Tensor counts = per_entry(first.logical_not(), G).to(G.scalar_type());
  const auto rotated = [&](const Tensor& X) { return state.P.mT().matmul(X).matmul(state.Q); };
  state.M.lerp_(G, counts * (1 - beta1));
  state.v.lerp_(rotated(G).square(), counts * (1 - beta2));
  const Tensor correction1 = (1 - at::pow(beta1, t)).to(G.scalar_type());
  const Tensor correction2 = (1 - at::pow(beta2, t)).sqrt().to(G.scalar_type());
  const Tensor step = rotated(state.M) / (state.v.sqrt().div_(correction2).add_(eps()).mul_(correction1));
  const Tensor U = state.P.matmul(step.masked_fill(per_entry(first, G), 0)).matmul(state.Q.mT());

  state.L.lerp_(G.matmul(G.mT()), 1 - shampoo_beta());
  state.R.lerp_(G.mT().matmul(G), 1 - shampoo_beta());
  const Tensor due = state.step.remainder(refresh()).eq(0).logical_and(first.logical_not());
  refresh_basis(state.P, state.L, state.v, -2, first, due);
  refresh_basis(state.Q, state.R, state.v, -1, first, due);
  return U;
}

std::vector<Field> SOAPOptions::fields(at::IntArrayRef shape) const {
  const int64_t m = shape[shape.size() - 2];
  const int64_t n = shape[shape.size() - 1];
  const auto square = [&](const char* name, int64_t side) {
    return Field{name, with_matrix_shape(shape, side, side), Storage::Compute};
  };
  return {{.name = "step", .shape = {}, .storage = Storage::Counter, .in_operands = true},
          {"exp_avg", shape.vec(), Storage::Compute},
          {"exp_avg_sq", shape.vec()},
          square("L", m),
          square("R", n),
          square("P", m),
          square("Q", n)};
}

}  // namespace prism
