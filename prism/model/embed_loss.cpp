#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "prism/model/layer.h"
#include "prism/model/ops.h"
#include "prism/model/products.h"

namespace prism::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Embed : Function<Embed> {
  static variable_list forward(AutogradContext* ctx, const Tensor& W, const Tensor& ids) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({ids});
    ctx->saved_data["vocab"] = W.size(0);
    return {at::embedding(W, ids), W};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto& dx = gradients[0];
    Tensor dW = gradients[1];
    if (!dx.defined()) return {dW, Tensor()};
    if (!dW.defined()) dW = at::zeros({ctx->saved_data["vocab"].toInt(), dx.size(-1)}, dx.options());
    ops::add_rows_(dW, ctx->get_saved_variables()[0].reshape(-1), dx.reshape({-1, dx.size(-1)}));
    return {dW, Tensor()};
  }
};

struct Norm : Function<Norm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& y, const Tensor& g,
                        const Numerics& numerics) {
    const int64_t width = x.size(-1);
    const auto [z, n, r] =
        ops::rms_norm(x.reshape({-1, width}), y.reshape({-1, width}), g, numerics.eps, numerics.type);
    numerics.observe("residual_stream", z);
    numerics.observe("norm", n);
    ctx->save_for_backward({z, r, g});
    return n.view(x.sizes());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto &z = saved[0], &r = saved[1], &g = saved[2], &dn = gradients[0];
    const auto [dz, dg, dy] = ops::rms_norm_backward(dn.reshape(z.sizes()), z, r, g, Tensor(), /*want_low=*/true);
    return {dz.view_as(dn), dy.view_as(dn), dg, Tensor()};
  }
};

// The number of rows of logits computed at a time: few enough to stay in cache (CPU) or within little memory (CUDA),
// but so many that updating dH, which is read and written for each piece, costs little beside the products. A multiple
// of their tiles.
int64_t piece_rows(const Tensor& h, int64_t vocab, at::ScalarType type) {
  const int64_t bytes = h.is_cpu() ? int64_t{1} << 23 : int64_t{1} << 30;
  const int64_t fit = bytes / static_cast<int64_t>(c10::elementSize(type)) / vocab / 128 * 128;
  return std::min(h.size(0), std::max<int64_t>(fit, 256));
}

struct LinearCrossEntropy : Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext* ctx, const Tensor& h_any, const Tensor& H_any, const Tensor& targets,
                        at::ScalarType type, bool gradient) {
    const Tensor h = h_any.to(type), H = H_any.to(type);
    // The gradient of a logit is rounded to the products' type anyway. If only the loss is needed, keep logits exact.
    const at::ScalarType logit_type = gradient ? type : at::kFloat;
    const int64_t rows = h.size(0), piece = piece_rows(h, H.size(0), logit_type);
    const double scale = 1.0 / static_cast<double>(rows);
    Tensor losses = at::empty({rows}, h.options().dtype(at::kFloat)),
           buffer = at::empty({piece, H.size(0)}, h.options().dtype(logit_type));
    Tensor dh, dH;
    if (gradient) {
      dh = at::empty_like(h);
      dH = at::empty_like(H_any);
    }
    for (int64_t first = 0; first < rows; first += piece) {
      const int64_t count = std::min(piece, rows - first);
      const Tensor h_piece = h.narrow(0, first, count);
      Tensor z = buffer.narrow(0, 0, count);
      product_out(z, h_piece, H);
      losses.narrow(0, first, count).copy_(ops::cross_entropy_(z, targets.narrow(0, first, count), gradient));
      if (!gradient) continue;
      Tensor dh_piece = dh.narrow(0, first, count);
      input_gradient_out(dh_piece, z, H, scale);
      weight_gradient_out(dH, z, h_piece, scale, /*adds=*/first > 0);
    }
    if (gradient) ctx->save_for_backward({dh, dH});
    return losses.mean();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    return {ops::scaled(saved[0], gradients[0]), ops::scaled(saved[1], gradients[0]), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::tuple<Tensor, Tensor> embed(const Tensor& W, const Tensor& ids) {
  const auto out = Embed::apply(W, ids);
  return {out[0], out[1]};
}

Tensor norm(const Stream& stream, const Tensor& g, const Numerics& numerics) {
  return Norm::apply(stream.x, stream.y, g, numerics);
}

Tensor linear_cross_entropy(const Tensor& h, const Tensor& H, const Tensor& targets, at::ScalarType type) {
  if (targets.is_cpu() && targets.numel() > 0) {
    const auto [least, most] = at::aminmax(targets);
    TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && most.item<int64_t>() < H.size(0), "model: tokens must be in [0, ",
                      H.size(0), "), got ", least.item<int64_t>(), " to ", most.item<int64_t>());
  }
  const bool gradient = at::GradMode::is_enabled() && (h.requires_grad() || H.requires_grad());
  return LinearCrossEntropy::apply(h, H, targets, type, gradient);
}

}  // namespace prism::model
