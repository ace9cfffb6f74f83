// Times loss and gradients of one batch of random tokens:
//   model_step PRESET VOCAB BATCH CONTEXT SECONDS [--device cuda] [--recompute]
// prints one JSON object: milliseconds (median), loss of the first step, peak bytes on the GPU. bench/model_step.py
// runs it beside PyTorch.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/model/qwen2.h"

namespace {

using prism::model::Qwen2;

double step(const Qwen2& model, const at::Tensor& tokens) {
  for (const auto& [name, parameter] : model.named_parameters()) parameter.mutable_grad().reset();
  const at::Tensor loss = model.loss(tokens);
  loss.backward();
  return loss.item<double>();  // waits for the device
}

nlohmann::json measure(const Qwen2& model, const at::Tensor& tokens, double seconds) {
  using Clock = std::chrono::steady_clock;
  double loss = 0;
  for (int i = 0; i < 3; ++i) loss = step(model, tokens);
  std::vector<double> times;
  double sum = 0;
  while (sum < seconds || times.size() < 3) {
    const auto start = Clock::now();
    step(model, tokens);
    sum += times.emplace_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return {{"milliseconds", 1e3 * times[times.size() / 2]}, {"loss", loss}, {"steps", times.size()}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto has = [&](const char* flag) {
    return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
  };
  if (arguments.size() < 5) {
    fmt::print(stderr, "expected: model_step PRESET VOCAB BATCH CONTEXT SECONDS [--device cuda] [--recompute]\n");
    return 2;
  }
  prism::model::ModelConfig config = prism::model::preset(arguments[0]);
  config.vocab = std::stoll(arguments[1]);
  config.context = std::stoll(arguments[3]);
  const at::Device device = has("--device") && has("cuda") ? at::kCUDA : at::kCPU;
  Qwen2 model(config, 1, device);
  model.set_recompute(has("--recompute"));
  const at::Tensor tokens =
      at::randint(config.vocab, {std::stoll(arguments[2]), config.context + 1}, at::kLong).to(device);
  fmt::print("{}\n", measure(model, tokens, std::stod(arguments[4])).dump());
}
