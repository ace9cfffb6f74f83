#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <tuple>
#include <vector>

// The parts of the decoder with hand-written gradients. All tokens become rows of one matrix, and matrix products that
// share an input are one product. Tensors that bypass a part unchanged (the residual stream, the embedding) are passed
// through it, so that their gradient is added inside the part's own backward pass.
namespace prism::model {

using at::Tensor;

// The weights of one layer. Wq, Wk and Wv are rows of Wqkv, in this order, and so are their biases; Wgate and Wup are
// rows of Wgu. The parameters are views of these fused matrices.
struct Layer {
  Tensor input_norm, Wq, Wk, Wv, bq, bk, bv, Wo, post_norm, Wgate, Wup, Wdown;
  Tensor Wqkv, bqkv, Wgu;
};

// Cosines and sines of the positions of a text, each (T, head_dim/2).
struct Rotation {
  Tensor cosine, sine;
};

// Receives the output of an operation, with the batch first: (B, …) or (B · T, …). `layer` is negative outside the
// layers. The operation has the name of the Hugging Face module that does it.
using Observer = std::function<void(int64_t layer, const char* operation, const Tensor& output)>;

struct Numerics {
  double eps = 1e-6;                   // of the norms
  at::ScalarType type = at::kFloat;    // of the matrix products
  const Observer* observer = nullptr;  // of this layer, or null
  int64_t layer = -1;

  void observe(const char* operation, const Tensor& output) const {
    if (observer != nullptr) (*observer)(layer, operation, output);
  }
};

// The residual stream x + y, where y is the output of the previous part, in the type of the products; undefined before
// the first layer. The next norm adds it: a product that adds would read and write float32, and copy x first.
struct Stream {
  Tensor x, y;
};

// Returns the rows of W, and W itself for the head. ids: (B, T) int64 → x: (B, T, width).
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

// layer_forward that keeps only its input and recomputes the rest in the backward pass.
Stream layer_recomputed(const Stream& stream, const Layer& layer, const Rotation& rotation, const Numerics& numerics);

// rms_norm(x + y) ⊙ g over the last dimension.
Tensor norm(const Stream& stream, const Tensor& g, const Numerics& numerics);

// The mean cross-entropy of softmax(H h) and the targets; h: (rows, width), H: (vocab, width), targets: (rows) int64.
// Logits and their gradients are computed for a piece of the rows at a time, both in the forward pass.
Tensor linear_cross_entropy(const Tensor& h, const Tensor& H, const Tensor& targets, at::ScalarType type);

}  // namespace prism::model
