#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "prism/model/layer.h"

namespace prism::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the second computation needs besides x; the tensors are shared with the model.
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
  static Tensor forward(AutogradContext* ctx, const Tensor& x, at::TensorList /*parameters*/,
                        const c10::intrusive_ptr<Inputs>& inputs) {
    ctx->save_for_backward({x});
    ctx->saved_data["inputs"] = at::IValue::make_capsule(inputs);
    return layer_forward(x, inputs->layer, inputs->rotation, inputs->numerics);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto inputs = c10::static_intrusive_pointer_cast<Inputs>(ctx->saved_data["inputs"].toCapsule());
    const at::AutoGradMode with_gradients(true);
    variable_list wanted = {ctx->get_saved_variables()[0].detach().requires_grad_(true)};
    const Tensor z = layer_forward(wanted[0], inputs->layer, inputs->rotation, inputs->numerics);
    for (const Tensor& parameter : parameters(inputs->layer)) wanted.push_back(parameter);
    variable_list result = torch::autograd::grad({z}, wanted, {gradients[0]});
    result.emplace_back();
    return result;
  }
};

}  // namespace

Tensor layer_recomputed(const Tensor& x, const Layer& layer, const Rotation& rotation, const Numerics& numerics) {
  const variable_list list = parameters(layer);
  return RecomputedLayer::apply(x, at::TensorList(list), c10::make_intrusive<Inputs>(layer, rotation, numerics));
}

}  // namespace prism::model
