// One whole step of each optimizer over the hidden matrices of the 22M model: gradients given, weights and state updated.

#include <benchmark/benchmark.h>
#include <prism/prism.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace {

std::vector<std::pair<std::string, torch::Tensor>> matrices_22m() {
  constexpr int64_t kLayers = 8, kWidth = 512, kKeyValue = 128, kMlp = 1408;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"q", {kWidth, kWidth}}, {"k", {kKeyValue, kWidth}}, {"v", {kKeyValue, kWidth}}, {"o", {kWidth, kWidth}},
      {"gate", {kMlp, kWidth}}, {"up", {kMlp, kWidth}},     {"down", {kWidth, kMlp}}};
  torch::manual_seed(0);
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (const auto& [name, shape] : shapes) {
      auto weight = (torch::randn(shape) * 0.02).requires_grad_();
      weight.mutable_grad() = torch::randn(shape);
      parameters.emplace_back("layers." + std::to_string(layer) + "." + name, weight);
    }
  }
  return parameters;
}

void step(benchmark::State& state, const std::string& name, const prism::Json& options) {
  const auto optimizer = prism::make_optimizer(name, matrices_22m(), options);
  optimizer->step();
  for (auto _ : state) optimizer->step();
  double bytes = 0;
  for (const auto& [key, tensor] : optimizer->snapshot().tensors) {
    if (key != "skipped") bytes += static_cast<double>(tensor.nbytes());
  }
  state.counters["state_bytes"] = bytes;
}

benchmark::internal::Benchmark* add(const std::string& label, const std::string& name,
                                    const prism::Json& options = prism::Json::object()) {
  return benchmark::RegisterBenchmark(label.c_str(), [=](benchmark::State& state) { step(state, name, options); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& name : prism::optimizer_names()) {
    if (name != "shampoo" && name != "soap") add(name, name);
  }
  add("soap", "soap")->Iterations(10);  // a whole cycle: one step in ten refreshes the bases
  add("shampoo", "shampoo")->Iterations(1);
  add("prism, minimax9", "prism", {{"coefficients", "minimax9"}});
  add("prism, ema", "prism", {{"covariance", "ema"}});
  add("prism, stacked", "prism", {{"solver", "stacked"}});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
