// Injects NaN and infinity into every parameter, forward and backward, at random steps. The step must change nothing,
// its record must name the culprit, and once the fault is gone training must go on as if it had never happened. A fault
// in a weight makes the output of its layer non-finite. A fault in the backward pass comes from a hook that multiplies
// the gradient by a number on the device, 1 except during the fault, so that a captured step sees it too. To repeat
// with other places and steps: test_train --gtest_filter='*Injection*' --gtest_repeat=20

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "prism/train/trainer.h"
#include "tests/train/helpers.h"
#include "tests/train/weights.h"

using namespace prism;
using train::Trainer;

namespace {

struct Fault {
  size_t parameter;
  bool forward;
  float value;
};

std::vector<Fault> all_faults(size_t parameters, std::mt19937& generator) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  std::vector<Fault> faults;
  for (size_t i = 0; i < parameters; ++i) {
    for (const bool forward : {true, false}) faults.push_back({i, forward, kValues[generator() % std::size(kValues)]});
  }
  std::shuffle(faults.begin(), faults.end(), generator);
  return faults;
}

class Injection : public testing::Test {
 protected:
  explicit Injection(at::Device device = at::kCPU) : device_(device) {}

  Trainer make(std::vector<std::string> settings) const {
    settings.insert(settings.end(), {"model.tied=false", "run.device=" + device_.str()});
    auto config = small_.config(settings);
    train::resolve(config, dataset_.tokenizer.size());
    return {config, dataset_, model::Qwen2(train::model_config(config, dataset_.tokenizer.size()), 1, device_)};
  }

  static void add_hooks(const Trainer& trainer, std::vector<at::Tensor>& factors) {
    for (const auto& [name, tensor] : trainer.model().named_parameters()) {
      const auto factor = at::ones({}, tensor.options().requires_grad(false));
      factors.push_back(factor);
      tensor.register_hook([factor](const at::Tensor& gradient) { return gradient * factor; });
    }
  }

  // Runs a step with the fault and removes the fault again.
  static void expect_skipped(Trainer& trainer, int64_t step, const Fault& fault, const at::Tensor& factor,
                             std::mt19937& generator) {
    const auto& [name, parameter] = trainer.model().named_parameters()[fault.parameter];
    const at::Tensor weight = parameter.detach(), good = weight.clone();
    if (!fault.forward) {
      factor.fill_(fault.value);
    } else if (name.find("embed_tokens") != std::string::npos) {  // the batch may lack the token of a single row
      weight.fill_(fault.value);
    } else {
      weight.view(-1)[static_cast<int64_t>(generator() % static_cast<size_t>(weight.numel()))].fill_(fault.value);
    }
    const auto before = weights_and_state(trainer);
    const auto record = trainer.step(step);
    EXPECT_TRUE(record.skipped) << name << " " << fault.value << " at step " << step;
    EXPECT_TRUE(is_same(before, weights_and_state(trainer))) << name << " " << fault.value << " at step " << step;
    const auto module = name.substr(0, name.rfind('.'));  // without ".weight" or ".bias"
    const auto culprit = fault.forward ? module + ", sequence " : "the gradient of " + name;
    EXPECT_TRUE(record.culprit.starts_with(culprit)) << record.culprit << ", expected " << culprit;
    weight.copy_(good);
    factor.fill_(1);
  }

  void inject(const std::vector<std::string>& settings, bool graph) {
    static unsigned round = 0;
    std::mt19937 generator(++round);
    Trainer hurt = make(settings), straight = make(settings);
    std::vector<at::Tensor> factors;
    add_hooks(hurt, factors);
    int64_t step = 1;
    const auto both = [&] {
      EXPECT_EQ(hurt.step(step).loss, straight.step(step).loss) << step;
      ++step;
    };
    for (; step <= 3;) both();  // a graph is captured at the second step
    for (const auto& fault : all_faults(factors.size(), generator)) {
      if (generator() % 2 == 0) both();
      expect_skipped(hurt, step, fault, factors[fault.parameter], generator);
    }
    both();
    EXPECT_EQ(hurt.is_graph(), graph);
    EXPECT_TRUE(is_same(weights_and_state(hurt), weights_and_state(straight)));
  }

  at::Device device_;
  SmallRun small_;
  train::Dataset dataset_ = small_.dataset();
};

TEST_F(Injection, ChangesNoWeightAndIsNamed) { inject({}, /*graph=*/false); }

class CudaInjection : public Injection {
 protected:
  CudaInjection() : Injection(at::hasCUDA() ? at::kCUDA : at::kCPU) {}
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    at::globalContext().setDeterministicAlgorithms(true, false);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

TEST_F(CudaInjection, IntoACapturedStepChangesNoWeightAndIsNamed) {
  inject({"model.width=128", "model.heads=4", "model.mlp=192"}, /*graph=*/true);
}

TEST_F(CudaInjection, IntoAnEagerStepChangesNoWeightAndIsNamed) {
  inject({"model.width=128", "model.heads=4", "model.mlp=192", "train.graph=false"}, /*graph=*/false);
}

}  // namespace
