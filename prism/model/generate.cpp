#include "prism/model/generate.h"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "prism/io/error.h"

namespace prism::model {
namespace {

// A text that grows, and the logits of its next token.
class Continuation {
 public:
  Continuation(const Qwen2& model, std::span<const uint32_t> prompt, int64_t tokens)
      : model_(model),
        text_(prompt.begin(), prompt.end()),
        cache_(model, 1, std::min<int64_t>(model.config().context, static_cast<int64_t>(prompt.size()) + tokens)) {}

  void append(uint32_t token) { text_.push_back(token); }

  std::span<const float> next_logits() {
    const int64_t context = model_.config().context;
    if (static_cast<int64_t>(text_.size()) > context) {
      text_.erase(text_.begin(), text_.end() - std::max<int64_t>(1, context / 2));
      cache_.clear();
    }
    const std::vector<int64_t> fresh(text_.begin() + cache_.length(), text_.end());
    const Tensor ids = at::tensor(fresh).unsqueeze(0).to(model_.device());
    logits_ = model_.next_logits(ids, cache_).to(at::kCPU).contiguous();
    return {logits_.const_data_ptr<float>(), static_cast<size_t>(logits_.numel())};
  }

 private:
  const Qwen2& model_;
  std::vector<int64_t> text_;
  KvCache cache_;
  Tensor logits_;
};

void check_prompt(std::span<const uint32_t> prompt, int64_t vocab) {
  if (prompt.empty()) throw Error("the prompt needs at least one token");
  const uint32_t most = *std::max_element(prompt.begin(), prompt.end());
  if (most >= vocab) {
    throw Error(fmt::format("the prompt has token {}, the model knows {} tokens", most, vocab));
  }
}

}  // namespace

std::vector<uint32_t> generate(const Qwen2& model, std::span<const uint32_t> prompt, const GenerateOptions& options,
                               std::optional<uint32_t> stop, const std::function<bool(uint32_t)>& on_token) {
  Sampler sampler(options);
  check_prompt(prompt, model.config().vocab);
  Continuation text(model, prompt, options.tokens);
  std::vector<uint32_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < options.tokens) {
    const uint32_t token = sampler.draw(text.next_logits());
    drawn.push_back(token);
    if ((on_token && !on_token(token)) || token == stop) break;
    text.append(token);
  }
  return drawn;
}

}  // namespace prism::model
