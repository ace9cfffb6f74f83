// Trains the same small network on noisy labels with AdamW, Muon and PRISM: same start, same batches, same grid of
// learning rates. Each method optimizes the hidden matrices; AdamW optimizes biases and the output layer.

#include <prism/prism.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int64_t kInputs = 64, kWidth = 128, kOutputs = 16, kBatch = 64, kSteps = 400;
constexpr double kLabelNoise = 1.0;  // standard deviation; that of the teacher's outputs is about 1

torch::nn::Sequential make_network() {
  return torch::nn::Sequential({{"in", torch::nn::Linear(kInputs, kWidth).ptr()},
                                {"relu1", torch::nn::ReLU().ptr()},
                                {"hidden", torch::nn::Linear(kWidth, kWidth).ptr()},
                                {"relu2", torch::nn::ReLU().ptr()},
                                {"head", torch::nn::Linear(kWidth, kOutputs).ptr()}});
}

struct Task {
  torch::nn::Sequential teacher = nullptr;
  double scale = 1;
  torch::Tensor test_x, test_y;

  Task() {
    torch::manual_seed(1);
    teacher = make_network();
    test_x = torch::randn({4096, kInputs});
    torch::NoGradGuard no_grad;
    scale = 1 / teacher->forward(test_x).std().item<double>();
    test_y = teacher->forward(test_x) * scale;
  }
  torch::Tensor labels(const torch::Tensor& x) {
    torch::NoGradGuard no_grad;
    const auto y = teacher->forward(x) * scale;
    return y + torch::randn_like(y) * kLabelNoise;
  }
};

struct Result {
  double loss, ms_per_step;
};

Result train(Task& task, const std::string& name, double lr) {
  torch::manual_seed(2);  // the same start and the same batches for every run
  auto network = make_network();
  const auto options = prism::make_options(name, {{"lr", lr}});
  prism::Mixed optimizer(network->named_parameters(), *options, prism::AdamWOptions(0.003));
  const prism::Schedule schedule{.kind = prism::ScheduleKind::Cosine, .warmup = 20, .total = kSteps, .floor = 0.1};
  std::chrono::duration<double, std::milli> in_step{0};
  for (int64_t t = 1; t <= kSteps; ++t) {
    const double factor = schedule(t);
    for (auto& group : optimizer.param_groups()) {
      const bool hidden = dynamic_cast<const prism::Options&>(group.options()).name() == name;
      group.options().set_lr(factor * (hidden ? lr : 0.003));
    }
    const auto x = torch::randn({kBatch, kInputs});
    optimizer.zero_grad();
    torch::mse_loss(network->forward(x), task.labels(x)).backward();
    const auto start = std::chrono::steady_clock::now();
    optimizer.step();
    in_step += std::chrono::steady_clock::now() - start;
  }
  torch::NoGradGuard no_grad;
  return {torch::mse_loss(network->forward(task.test_x), task.test_y).item<double>(), in_step.count() / kSteps};
}

}  // namespace

int main() {
  torch::set_num_threads(1);  // the matrices are small
  Task task;
  const std::vector<double> rates = {0.0025, 0.005, 0.01, 0.02, 0.04, 0.08};
  std::printf("A %ld-%ld-%ld-%ld network learns a teacher's outputs under label noise: %ld steps of %ld examples.\n",
              kInputs, kWidth, kWidth, kOutputs, kSteps, kBatch);
  std::printf("Mean squared error against the noiseless teacher, for each learning rate (lower is better):\n\n%-10s",
              "");
  for (const double lr : rates) std::printf("%9g", lr);
  std::printf("   best    step\n");
  for (const std::string name : {"adamw", "muon", "prism"}) {
    std::printf("%-10s", name.c_str());
    double best = INFINITY;
    double milliseconds = 0;
    for (const double lr : rates) {
      const auto result = train(task, name, lr);
      best = std::min(best, result.loss);
      milliseconds += result.ms_per_step / static_cast<double>(rates.size());
      std::printf("%9.4f", result.loss);
      std::fflush(stdout);
    }
    std::printf(" %7.4f  %.2f ms\n", best, milliseconds);
  }
  std::printf("\nA network this small shows that the optimizers work, not which is best for yours.\n");
  return 0;
}
