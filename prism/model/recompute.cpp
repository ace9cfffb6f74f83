#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "prism/model/layer.h"

namespace prism::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs of the second computation besides its stream. The tensors are shared with the model.
struct Inputs : torch::CustomClassHolder {
  Inputs(Layer l, Rotation r, const Numerics& n) : layer(std::move(l)), rotation(std::move(r)), numerics(n) {}
  Layer layer;
  Rotation rotation;
  Numerics numerics;
};

variable_list parameters(const Layer& l) {
  return {l.input_norm, l.Wq, l.Wk, l.Wv, l.bq, l.bk, l.bv, l.Wo, l.post_norm, l.Wgate, l.Wup, l.Wdown};
}

struct RecomputedLayer : torch::autograd::Function<RecomputedLayer> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, at::TensorList /*parameters*/,
                               const std::optional<Tensor>& y_or_none, const c10::intrusive_ptr<Inputs>& inputs) {
    const Tensor y = y_or_none.value_or(Tensor());
    ctx->save_for_backward({x, y});
    ctx->saved_data["inputs"] = at::IValue::make_capsule(inputs);
    const Stream out = layer_forward({x, y}, inputs->layer, inputs->rotation, inputs->numerics);
    return {out.x, out.y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto inputs = c10::static_intrusive_pointer_cast<Inputs>(ctx->saved_data["inputs"].toCapsule());
    const auto saved = ctx->get_saved_variables();
    const at::AutoGradMode with_gradients(true);
    const auto fresh = [](const Tensor& t) { return t.defined() ? t.detach().requires_grad_(true) : t; };
    const Stream in = {fresh(saved[0]), fresh(saved[1])};
    const Stream out = layer_forward(in, inputs->layer, inputs->rotation, inputs->numerics);
    variable_list wanted = parameters(inputs->layer);
    const size_t arguments = wanted.size() + 3;  // x, the parameters, y and inputs
    wanted.insert(wanted.begin(), in.x);
    if (in.y.defined()) wanted.push_back(in.y);
    variable_list result = torch::autograd::grad({out.x, out.y}, wanted, gradients);
    result.resize(arguments);
    return result;
  }
};

}  // namespace

Stream layer_recomputed(const Stream& stream, const Layer& layer, const Rotation& rotation, const Numerics& numerics) {
  const variable_list list = parameters(layer);
  const auto out = RecomputedLayer::apply(stream.x, at::TensorList(list), std::optional(stream.y),
                                          c10::make_intrusive<Inputs>(layer, rotation, numerics));
  return {out[0], out[1]};
}

}  // namespace prism::model
