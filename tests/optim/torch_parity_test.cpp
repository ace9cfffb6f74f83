// Compares trajectories with those of torch's optimizers.

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "prism/io/safetensors.h"
#include "prism/optim/host_step.h"
#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

constexpr int64_t kSteps = 100;

// Feeds the same gradients to ours and to torch's for 100 steps, in float64 and in float32.
template <class TorchOptimizer, class TorchOptions>
void expect_torchs_path(const std::string& name, const Json& json, const TorchOptions& options) {
  for (const auto& [type, tolerance] : {std::pair(torch::kFloat64, 1e-12), std::pair(torch::kFloat32, 1e-6)}) {
    const auto ours = NamedTensors{{"a", parameter(random({5, 4}, 1, type))},
                                   {"b", parameter(random({7}, 2, type))},
                                   {"c", parameter(random({5, 4}, 3, type))},
                                   {"d", parameter(random({}, 4, type))}};
    const auto theirs = copy_of(ours);
    std::vector<Tensor> tensors;
    for (const auto& [key, tensor] : theirs) tensors.push_back(tensor);
    const auto optimizer = make_optimizer(name, ours, json);
    TorchOptimizer reference(tensors, options);
    for (int64_t t = 1; t <= kSteps; ++t) {
      set_gradients(ours, t);
      set_gradients(theirs, t);
      optimizer->step();
      reference.step();
    }
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_CLOSE(ours[i].second, theirs[i].second, tolerance) << name << ' ' << json;
  }
}

TEST(TorchParity, AdamFollowsTorchs) {
  using Torch = torch::optim::Adam;
  using TorchOptions = torch::optim::AdamOptions;
  expect_torchs_path<Torch>("adam", Json::object(), TorchOptions());
  expect_torchs_path<Torch>("adam", {{"lr", 0.05}, {"betas", {0.8, 0.95}}, {"eps", 1e-4}, {"weight_decay", 0.1}},
                            TorchOptions(0.05).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1));
  expect_torchs_path<Torch>("adam", {{"lr", 0.05}, {"amsgrad", true}, {"betas", {0.9, 0.5}}},
                            TorchOptions(0.05).amsgrad(true).betas({0.9, 0.5}));
}

TEST(TorchParity, AdamWFollowsTorchs) {
  using Torch = torch::optim::AdamW;
  using TorchOptions = torch::optim::AdamWOptions;
  expect_torchs_path<Torch>("adamw", Json::object(), TorchOptions());
  expect_torchs_path<Torch>("adamw", {{"lr", 0.05}, {"betas", {0.8, 0.95}}, {"eps", 1e-4}, {"weight_decay", 0.3}},
                            TorchOptions(0.05).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.3));
  expect_torchs_path<Torch>("adamw", {{"lr", 0.05}, {"amsgrad", true}, {"betas", {0.9, 0.5}}},
                            TorchOptions(0.05).amsgrad(true).betas({0.9, 0.5}));
}

const std::vector<std::pair<std::string, Json>> kHostVariants = {
    {"adamw", Json::object()},
    {"adamw", {{"lr", 0.05}, {"betas", {0.3, 0.9}}, {"amsgrad", true}, {"weight_decay", 0}}},
    {"adamw", {{"maximize", true}, {"eps", 1e-3}, {"master_weights", true}}},
    {"adam", {{"weight_decay", 0.1}, {"master_weights", true}}},
    {"adam", {{"amsgrad", true}, {"betas", {0, 0.99}}}},
    {"adagrad", Json::object()},
    {"adagrad", {{"lr_decay", 0.1}, {"initial_accumulator_value", 0.5}, {"weight_decay", 0.1}}},
    {"rmsprop", Json::object()},
    {"rmsprop", {{"momentum", 0.5}, {"weight_decay", 0.1}, {"maximize", true}}},
    {"rmsprop", {{"centered", true}, {"alpha", 0.3}}},
    {"rmsprop", {{"centered", true}, {"momentum", 0.5}, {"master_weights", true}}}};

using TakeStep = std::function<void(const Options&, Bucket&, const std::vector<Tensor>&, const std::vector<Tensor>&,
                                    const StepInputs&)>;

void on_host(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
             const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  ASSERT_TRUE(step_on_host(options, bucket, parameters, gradients, inputs));
}

// Takes five steps with gradients that `gradient_type` represents. Returns weights and state under their names.
std::map<std::string, Tensor> five_steps(const Options& options, at::ScalarType type, at::ScalarType gradient_type,
                                         const TakeStep& take) {
  std::vector<Tensor> weights;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{123, 77}, {123, 77}, {123, 77}, {7}, {}})
    weights.push_back(random(shape, weights.size(), gradient_type).to(type));
  auto buckets = make_buckets(options, weights, {"a", "b", "c", "d", "e"});
  for (int64_t t = 1; t <= 5; ++t) {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < weights.size(); ++i)
      gradients.push_back(t == 3 && i == 1 ? Tensor()
                                           : random(weights[i].sizes(), 100 * t + i, gradient_type).to(type));
    if (t == 4) weights[2].fill_(0.5);  // the user writes weights: their masters are stale
    const StepInputs inputs{.lr = torch::tensor(0.01, torch::kFloat64),
                            .grad_scale = t == 5 ? torch::tensor(3.0F) : Tensor()};
    for (auto& bucket : buckets) take(options, bucket, weights, gradients, inputs);
  }
  std::map<std::string, Tensor> result;
  for (size_t i = 0; i < weights.size(); ++i) result["weight " + std::to_string(i)] = weights[i];
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const auto& [field, stack] : buckets[b].state) result[field + ' ' + std::to_string(b)] = stack;
  }
  return result;
}

// On the CPU a step of an elementwise rule is one pass over memory. Its formulas are those of the plain operators,
// rounded elsewhere.
TEST(HostStep, IsAsAccurateAsThePlainStep) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    for (const auto& [name, json] : kHostVariants) {
      const auto options = make_options(name, json);
      const auto exact = five_steps(*options, torch::kFloat64, type, step_bucket);
      const auto fused = five_steps(*options, type, type, on_host);
      const auto plain = five_steps(*options, type, type, step_bucket);
      for (const auto& [key, expected] : exact) {
        const auto error = [&truth = expected](const Tensor& x) {
          return (x.to(torch::kFloat64) - truth).abs().max().item<double>();
        };
        const double rounding = type == torch::kFloat64 ? 1e-14 : 1e-6;
        EXPECT_LE(error(fused.at(key)), 2 * error(plain.at(key)) + rounding)
            << name << ' ' << json << ' ' << type << ' ' << key;
      }
      EXPECT_EQ(fused.size(), plain.size());
    }
  }
}

TEST(HostStep, HasTheSameBitsForAnyThreadsAndAnyCut) {
  constexpr int64_t kSize = 150'001;
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const auto& [name, json] : kHostVariants) {
      const auto options = make_options(name, json);
      // The elements of one vector as parameters of these lengths.
      const auto stepped = [&](const std::vector<int64_t>& lengths, int threads) {
        const int before = at::get_num_threads();
        at::set_num_threads(threads);
        const Tensor W = random({kSize}, 1, type);
        auto weights = W.split_with_sizes(lengths);
        auto buckets = make_buckets(*options, weights, std::vector<std::string>(lengths.size(), "w"));
        for (int64_t t = 1; t <= 3; ++t) {
          const auto gradients = random({kSize}, 10 + t, type).split_with_sizes(lengths);
          for (auto& bucket : buckets)
            on_host(*options, bucket, weights, gradients, {.lr = torch::tensor(0.01, torch::kFloat64)});
        }
        at::set_num_threads(before);
        return W;
      };
      const Tensor whole = stepped({kSize}, 1);
      EXPECT_TRUE(torch::equal(stepped({kSize}, 3), whole)) << name << ' ' << json << ' ' << type;
      EXPECT_TRUE(torch::equal(stepped({3, 50'000, kSize - 50'003}, 1), whole)) << name << ' ' << json << ' ' << type;
    }
  }
}

// g/√(g²) is exactly ±1 only if the root is correctly rounded.
TEST(HostStep, WithoutMemoryAdamsStepIsExactlyTheRate) {
  const Json json = {{"lr", 0.25}, {"betas", {0, 0}}, {"eps", 0}, {"weight_decay", 0}};
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    const auto W = parameter(random({1000}, 1, type));
    const auto before = W.detach().clone();
    const auto optimizer = make_optimizer("adamw", NamedTensors{{"W", W}}, json);
    W.mutable_grad() = random({1000}, 2, type);
    optimizer->step();
    EXPECT_TRUE(torch::equal(W.detach(), before - W.grad().sign() * 0.25));
  }
}

TEST(HostStep, LeavesWhatItCannotDoToThePlainStep) {
  const auto taken = [](const std::string& name, const Json& json, const Tensor& W, const Tensor& G) {
    const auto options = make_options(name, json);
    auto buckets = make_buckets(*options, {W}, {"W"});
    const Tensor before = W.clone();
    const bool result = step_on_host(*options, buckets.front(), {W}, {G}, {.lr = torch::tensor(0.1, torch::kFloat64)});
    EXPECT_EQ(torch::equal(W, before), !result);
    return result;
  };
  const auto W = [] { return random({6, 4}, 1, torch::kFloat32); };
  const auto G = random({6, 4}, 2, torch::kFloat32);
  EXPECT_TRUE(taken("adamw", Json::object(), W(), G));
  EXPECT_TRUE(taken("adamw", Json::object(), W(), G.t().contiguous().t()));
  EXPECT_FALSE(taken("adamw", Json::object(), W().t().contiguous().t(), G));
  EXPECT_FALSE(taken("adamw", Json::object(), W().to(torch::kBFloat16), G));
  EXPECT_FALSE(taken("adamw", {{"state_dtype", "float64"}}, W(), G));
  EXPECT_FALSE(taken("muon", Json::object(), W(), G));
  EXPECT_FALSE(taken("soap", Json::object(), W(), G));
  EXPECT_TRUE(taken("adagrad", Json::object(), W(), G));
  EXPECT_TRUE(taken("rmsprop", Json::object(), W(), G));
}

TEST(HostStep, TellsAutogradThatTheWeightsChanged) {
  const auto W = parameter(random({6, 4}, 1, torch::kFloat32));
  const auto optimizer = make_optimizer("adamw", NamedTensors{{"W", W}}, Json::object());
  const auto loss = W.square().sum();
  W.mutable_grad() = random({6, 4}, 2, torch::kFloat32);
  optimizer->step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(TorchParity, AdaGradFollowsTorchs) {
  using Torch = torch::optim::Adagrad;
  using TorchOptions = torch::optim::AdagradOptions;
  expect_torchs_path<Torch>("adagrad", Json::object(), TorchOptions());
  expect_torchs_path<Torch>(
      "adagrad",
      {{"lr", 0.1}, {"lr_decay", 0.02}, {"weight_decay", 0.1}, {"initial_accumulator_value", 0.5}, {"eps", 1e-3}},
      TorchOptions(0.1).lr_decay(0.02).weight_decay(0.1).initial_accumulator_value(0.5).eps(1e-3));
}

TEST(TorchParity, RMSpropFollowsTorchs) {
  using Torch = torch::optim::RMSprop;
  using TorchOptions = torch::optim::RMSpropOptions;
  expect_torchs_path<Torch>("rmsprop", Json::object(), TorchOptions());
  expect_torchs_path<Torch>("rmsprop",
                            {{"lr", 0.02}, {"alpha", 0.9}, {"eps", 1e-3}, {"weight_decay", 0.1}, {"momentum", 0.5}},
                            TorchOptions(0.02).alpha(0.9).eps(1e-3).weight_decay(0.1).momentum(0.5));
  expect_torchs_path<Torch>("rmsprop", {{"centered", true}, {"alpha", 0.9}}, TorchOptions().centered(true).alpha(0.9));
  expect_torchs_path<Torch>("rmsprop", {{"centered", true}, {"momentum", 0.5}},
                            TorchOptions().centered(true).momentum(0.5));
}

TEST(TorchParity, DefaultsAreTorchs) {
  EXPECT_EQ(AdamOptions().lr(), torch::optim::AdamOptions().lr());
  EXPECT_EQ(AdamWOptions().weight_decay(), torch::optim::AdamWOptions().weight_decay());
  EXPECT_EQ(AdaGradOptions().lr(), torch::optim::AdagradOptions().lr());
  EXPECT_EQ(RMSpropOptions().lr(), torch::optim::RMSpropOptions().lr());
}

Tensor recorded(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorView* view = file.find(name);
  if (view == nullptr) throw std::runtime_error("the record has no " + name);
  Tensor tensor = torch::empty(view->shape, view->dtype == "F64" ? torch::kFloat64 : torch::kFloat32);
  std::memcpy(tensor.mutable_data_ptr(), view->data, view->bytes);
  return tensor;
}

// torch.optim.Muon computes in bfloat16, which takes it away from its own formula. Ours may be at most twice that far
// from torch's.
TEST(TorchParity, MuonIsAsNearToTorchsAsTorchsToItsFormula) {
  const char* path = std::getenv("PRISM_MUON_RECORD");
  if (path == nullptr) GTEST_SKIP() << "PRISM_MUON_RECORD names no file made by record_muon.py; ctest makes it";
  const io::SafetensorsFile file(path);
  NamedTensors parameters;
  for (const char* shape : {"64x32", "32x96", "48x48", "16x128"}) {
    parameters.emplace_back(shape, parameter(recorded(file, std::string(shape) + ".start")));
  }
  Muon muon(parameters, MuonOptions(0.02).weight_decay(0.1));
  for (int64_t t = 0; t < kSteps; ++t) {
    for (const auto& [shape, tensor] : parameters)
      tensor.mutable_grad() = recorded(file, shape + ".gradients")[t].clone();
    muon.step();
  }
  for (const auto& [shape, tensor] : parameters) {
    const auto ours = tensor.detach().to(torch::kFloat64);
    const auto formula = recorded(file, shape + ".formula");
    const auto reference = recorded(file, shape + ".torch").to(torch::kFloat64);
    const double away = (reference - formula).norm().item<double>();
    EXPECT_GT(away, 0);
    EXPECT_LE((ours - reference).norm().item<double>(), 2 * away) << shape;
    EXPECT_LE((ours - formula).norm().item<double>(), 0.05 * away) << shape;
  }
}

}  // namespace
}  // namespace prism::test
