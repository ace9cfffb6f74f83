#include "prism/model/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>

#include "prism/io/error.h"
#include "prism/io/safetensors.h"

namespace prism::model {
namespace {

constexpr std::string_view kHead = "lm_head.weight", kEmbedding = "model.embed_tokens.weight";

std::optional<at::ScalarType> scalar_type(std::string_view dtype) {
  if (dtype == io::kFloat32) return at::kFloat;
  if (dtype == io::kBfloat16) return at::kBFloat16;
  if (dtype == io::kFloat16) return at::kHalf;
  return {};
}

Tensor to_tensor(const io::TensorView& view) {
  Tensor tensor = at::empty(view.shape, at::TensorOptions().dtype(*scalar_type(view.dtype)));
  if (view.bytes > 0) std::memcpy(tensor.data_ptr(), view.data, view.bytes);
  return tensor;
}

void check(const io::TensorView& view, const Tensor& parameter, std::string_view where) {
  if (!scalar_type(view.dtype)) {
    throw Error(fmt::format("{}: '{}' has the type {}, expected {}, {} or {}", where, view.name, view.dtype,
                            io::kFloat32, io::kBfloat16, io::kFloat16));
  }
  if (parameter.sizes() != at::IntArrayRef(view.shape)) {
    throw Error(fmt::format("{}: '{}' has the shape [{}], the model needs [{}]", where, view.name,
                            fmt::join(view.shape, ", "), fmt::join(parameter.sizes(), ", ")));
  }
}

// Throws if a tied model comes with a head, as some programs write it, that differs from the embedding.
void check_tied_head(const io::TensorView& head, const io::TensorView* embedding, std::string_view where) {
  const bool same = embedding != nullptr && head.dtype == embedding->dtype && head.shape == embedding->shape &&
                    std::memcmp(head.data, embedding->data, head.bytes) == 0;
  if (!same) throw Error(fmt::format("{}: '{}' differs from '{}', but the model is tied", where, kHead, kEmbedding));
}

}  // namespace

void save_weights(const Qwen2& model, const std::filesystem::path& file, at::ScalarType type) {
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16, "model: weights are written as float32 or bfloat16");
  std::vector<Tensor> kept;
  std::vector<io::TensorView> views;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Tensor& tensor = kept.emplace_back(parameter.detach().to(at::kCPU, type).contiguous());
    views.push_back({name, type == at::kFloat ? io::kFloat32 : io::kBfloat16, tensor.sizes().vec(),
                     static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  io::write_safetensors(file, views, {});
}

void load_weights(Qwen2& model, const std::filesystem::path& file) {
  const io::SafetensorsFile source(file);
  assign_weights(model, source.tensors(), file.string());
}

void assign_weights(Qwen2& model, std::span<const io::TensorView> views, std::string_view where) {
  std::map<std::string_view, const io::TensorView*> by_name;
  for (const auto& view : views) by_name[view.name] = &view;
  const auto find = [&](std::string_view name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  if (model.config().tied && find(kHead) != nullptr) {
    check_tied_head(*find(kHead), find(kEmbedding), where);
    by_name.erase(kHead);
  }
  for (const auto& [name, parameter] : model.named_parameters()) {
    const io::TensorView* view = find(name);
    if (view == nullptr) throw Error(fmt::format("{}: '{}' is missing", where, name));
    check(*view, parameter, where);
  }
  if (by_name.size() > model.named_parameters().size()) {
    for (const auto& [name, parameter] : model.named_parameters()) by_name.erase(name);
    throw Error(fmt::format("{}: '{}' is no parameter of the model", where, by_name.begin()->first));
  }
  const at::NoGradGuard no_gradients;
  for (const auto& [name, parameter] : model.named_parameters()) parameter.copy_(to_tensor(*find(name)));
}

}  // namespace prism::model
