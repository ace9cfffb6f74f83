#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <tuple>
#include <vector>

// The decoder's parts with hand-written gradients: as many tokens as there are become rows, matrix products that share
// an input are one product, and what passes a part unchanged (the residual stream, the embedding) is handed through it,
// so that its gradient is added inside the part's own backward pass.
namespace prism::model {

using at::Tensor;

// The weights of one layer. Wq, Wk, Wv are rows of Wqkv, in this order, as are the biases; Wgate and Wup of Wgu: the
// parameters are views of what the products use.
struct Layer {
  Tensor input_norm, Wq, Wk, Wv, bq, bk, bv, Wo, post_norm, Wgate, Wup, Wdown;
  Tensor Wqkv, bqkv, Wgu;
};

// Positions a piece of text has, as rows of the tables of cosines and sines, (T, head_dim/2).
struct Rotation {
  Tensor cosine, sine;
};

// Hears what an operation computed, with the batch first: (B, …) or (B · T, …). `layer` is negative outside the layers,
// and the operation is named as the module of Hugging Face that does it.
using Observer = std::function<void(int64_t layer, const char* operation, const Tensor& output)>;

struct Numerics {
  double eps = 1e-6;                   // of the norms
  at::ScalarType type = at::kFloat;    // of the matrix products
  const Observer* observer = nullptr;  // of this layer, where somebody looks on
  int64_t layer = -1;

  void observe(const char* operation, const Tensor& output) const {
    if (observer != nullptr) (*observer)(layer, operation, output);
  }
};

// The residual stream x + y: y, in the type of the products, is what the part before has to add, and undefined before
// the first layer. The norm that follows adds it: a product that adds would read and write float32, and copy x first.
struct Stream {
  Tensor x, y;
};

// Rows of W, and W itself for the head. ids: (B, T) int64 → x: (B, T, width).
std::tuple<Tensor, Tensor> embed(const Tensor& W, const Tensor& ids);

// (q, k, v, z) with z = x + y, n = rms_norm(z) and, as (B, heads, T, head_dim), q = rope(Wq n + bq),
// k = rope(Wk n + bk), v = Wv n + bv.
std::tuple<Tensor, Tensor, Tensor, Tensor> attention_input(const Stream& stream, const Layer& layer,
                                                           const Rotation& rotation, const Numerics& numerics);

// softmax(q kᵀ/√head_dim) v, causal: the T queries are the last of the keys' positions. (B, heads, T, head_dim).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v);

// z = x + Wo o and, with n = rms_norm(z), Wdown (silu(Wgate n) ⊙ Wup n). o: (B, heads, T, head_dim).
Stream attention_output_and_mlp(const Tensor& x, const Tensor& o, const Layer& layer, const Numerics& numerics);

Stream layer_forward(const Stream& stream, const Layer& layer, const Rotation& rotation, const Numerics& numerics);

// layer_forward that keeps its input alone and computes the rest again in the backward pass.
Stream layer_recomputed(const Stream& stream, const Layer& layer, const Rotation& rotation, const Numerics& numerics);

// rms_norm(x + y) ⊙ g over the last dimension.
Tensor norm(const Stream& stream, const Tensor& g, const Numerics& numerics);

// The mean cross-entropy of softmax(H h) and the targets; h: (rows, width), H: (vocab, width), targets: (rows) int64.
// Logits are made for a piece of the rows at a time, and so are their gradients, in the forward pass already.
Tensor linear_cross_entropy(const Tensor& h, const Tensor& H, const Tensor& targets, at::ScalarType type);

}  // namespace prism::model
