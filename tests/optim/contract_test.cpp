// The duties of every optimizer; state_contract_test.cpp has those about state.

#include "tests/optim/contract.h"

#include <limits>
#include <map>
#include <set>

namespace prism::test {
namespace {

TEST_P(Contract, SolvesAQuadratic) {  // ½‖W − A‖², with the learning rate falling to zero
  const std::map<std::string, double> rates = {
      {"prism", 0.3},    {"muon", 0.1}, {"tikhonovmuon", 0.2}, {"adamw", 0.1},       {"adam", 0.1},  {"adagrad", 1},
      {"rmsprop", 0.05}, {"ssd", 0.1},  {"rmsspectral", 0.02}, {"adaspectral", 0.2}, {"shampoo", 1}, {"soap", 0.1}};
  constexpr int64_t kSteps = 200;
  const double lr = rates.at(GetParam().name);
  const auto W = parameter(torch::zeros({6, 4}, torch::kFloat64));
  const auto A = random({6, 4}, 3);
  const auto optimizer = make({{"w", W}}, {{"lr", lr}, {"weight_decay", 0}});
  for (int64_t t = 0; t < kSteps; ++t) {
    optimizer->param_groups()[0].options().set_lr(lr * static_cast<double>(kSteps - t) / kSteps);
    optimizer->zero_grad();
    (W - A).square().sum().mul(0.5).backward();
    optimizer->step();
  }
  EXPECT_LT(((W - A).norm() / A.norm()).item<double>(), 0.02);
}

TEST_P(Contract, KeepsShapeAndTypeOfFloat64AndBFloat16Weights) {
  for (const auto type : {torch::kFloat64, torch::kBFloat16}) {
    const auto parameters = model(type);
    const auto before = values_of(parameters);
    const auto optimizer = make(parameters, {{"lr", 1.0}});  // far above the rounding of bfloat16 weights
    run(*optimizer, parameters, 1, 2);
    expect_finite(parameters);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(parameters[i].second.scalar_type(), type);
      EXPECT_EQ(parameters[i].second.sizes(), before[i].sizes());
      EXPECT_FALSE(torch::equal(parameters[i].second, before[i])) << parameters[i].first;
    }
  }
}

TEST_P(Contract, FollowsTheSamePathInFloat64) {  // what float32 computes is what float64 computes, rounded
  // In directions without gradient SOAP's Adam turns rounding noise into full steps. A square matrix has no such
  // direction.
  const bool soap = GetParam().name == "soap";
  const NamedTensors narrow = soap ? NamedTensors{{"square", parameter(random({5, 5}, 9, torch::kFloat32))}} : model();
  NamedTensors wide;
  for (const auto& [name, tensor] : narrow) wide.emplace_back(name, parameter(tensor.detach().to(torch::kFloat64)));
  run_both(*make(narrow), narrow, *make(wide), wide, 3);
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_CLOSE(narrow[i].second, wide[i].second, 1e-4) << narrow[i].first;
}

TEST_P(Contract, OnlyDecaysWhereGradientAndMomentumAreZero) {
  const auto parameters = model(torch::kFloat64);
  const auto before = values_of(parameters);
  const double decay = couples_decay() ? 0 : 0.25;
  const auto optimizer = make(parameters, {{"lr", 0.5}, {"weight_decay", decay}});
  for (const auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::zeros_like(tensor);
  optimizer->step();
  optimizer->step();
  const double keep = 1 - 0.5 * decay;
  const double first = rests_first() ? 1 : keep;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters[i].second, before[i] * first * keep)) << parameters[i].first;
  }
}

TEST_P(Contract, LeavesParameterAndStateUntouchedWithoutGradient) {
  const auto parameters = model();
  const auto optimizer = make(parameters, {{"weight_decay", 0.1}});
  run(*optimizer, parameters, 1, 2);
  const auto weights = values_of(parameters);
  const auto state = state_of(*optimizer);
  set_gradients(parameters, 3);
  parameters[2].second.mutable_grad() = Tensor();  // the second of its bucket
  parameters[4].second.mutable_grad() = Tensor();  // alone in its bucket
  optimizer->step();
  const auto after = state_of(*optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    const bool missing = i == 2 || i == 4;
    EXPECT_EQ(torch::equal(tensor, weights[i]), missing) << name;
    for (const auto& [key, value] : state) {
      if (!missing || !key.starts_with("state." + name + ".")) continue;
      EXPECT_TRUE(torch::equal(value, after.at(key))) << key;
    }
  }
}

TEST_P(Contract, AMissingGradientDoesNotChangeWhatOthersOfTheBucketDo) {
  const auto together = model();
  const auto alone = NamedTensors{{"tall.0", parameter(together[0].second.detach())}};
  const auto first = make(together);
  const auto second = make(alone);
  for (int64_t t = 1; t <= 3; ++t) {
    set_gradients(together, t);
    set_gradients(alone, t);
    together[2].second.mutable_grad() = Tensor();
    first->step();
    second->step();
  }
  EXPECT_CLOSE(together[0].second, alone[0].second, 1e-6);
}

TEST_P(Contract, LeavesTheGradientUntouched) {
  const auto parameters = model();
  const auto optimizer = make(parameters, {{"weight_decay", 0.1}, {"maximize", true}});
  for (int64_t t = 1; t <= 2; ++t) {
    set_gradients(parameters, t);
    std::vector<Tensor> gradients;
    for (const auto& [name, tensor] : parameters) gradients.push_back(tensor.grad().clone());
    optimizer->step();
    for (size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].second.grad(), gradients[i]));
  }
}

TEST_P(Contract, DecaysExactlyOnce) {
  constexpr double kRate = 0.25;
  constexpr double kDecay = 0.5;
  const auto decayed = model(torch::kFloat64);
  const auto plain = copy_of(decayed);
  const auto before = values_of(decayed);
  const auto first = make(decayed, {{"lr", kRate}, {"weight_decay", kDecay}});
  const auto second = make(plain, {{"lr", kRate}, {"weight_decay", 0}});
  if (rests_first()) {
    run(*first, decayed, 9, 9);
    run(*second, plain, 9, 9);
  }
  set_gradients(decayed, 1);
  set_gradients(plain, 1);
  if (couples_decay()) {
    for (const auto& [name, tensor] : plain) tensor.mutable_grad() = tensor.grad() + kDecay * tensor.detach();
  }
  first->step();
  second->step();
  for (size_t i = 0; i < before.size(); ++i) {
    const auto expected =
        couples_decay() ? plain[i].second.detach() : plain[i].second.detach() - kRate * kDecay * before[i];
    EXPECT_CLOSE(decayed[i].second, expected, 1e-14) << decayed[i].first;
  }
}

TEST_P(Contract, MaximizeMirrorsTheDescent) {
  const auto up = model();
  const auto down = copy_of(up);
  const auto before = values_of(up);
  const auto first = make(up, {{"maximize", true}, {"weight_decay", 0}});
  const auto second = make(down, {{"weight_decay", 0}});
  set_gradients(up, 1);
  set_gradients(down, 1);
  first->step();
  second->step();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_CLOSE(up[i].second.detach() - before[i], before[i] - down[i].second.detach(), 1e-6) << up[i].first;
  }
}

TEST_P(Contract, ABatchEqualsOneByOne) {
  const auto together = model();
  const auto apart = copy_of(together);
  const auto batched = make(together);
  std::vector<std::unique_ptr<Optimizer>> single;
  for (const auto& item : apart) single.push_back(make({item}));
  run(*batched, together, 1, 5);
  for (size_t i = 0; i < apart.size(); ++i) run(*single[i], {apart[i]}, 1, 5);
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_CLOSE(together[i].second, apart[i].second, 2e-6) << apart[i].first;
}

TEST_P(Contract, EvaluatesAClosureWithGradientsEnabledAndReturnsItsLoss) {
  const auto W = parameter(random({6, 4}, 3));
  const auto before = W.detach().clone();
  const auto optimizer = make({{"w", W}});
  torch::NoGradGuard no_grad;
  const auto loss = optimizer->step([&] {
    optimizer->zero_grad();
    auto value = W.square().sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<double>(), before.square().sum().item<double>());
  EXPECT_EQ(torch::equal(W, before), rests_first());
  optimizer->zero_grad();
  EXPECT_FALSE(W.grad().defined() && W.grad().any().item<bool>());
}

TEST_P(Contract, ObeysTorchsLearningRateSchedulers) {
  const auto parameters = model();
  const auto optimizer = make(parameters, {{"lr", 0.5}, {"weight_decay", 0}});
  torch::optim::StepLR scheduler(*optimizer, /*step_size=*/1, /*gamma=*/0);
  run(*optimizer, parameters, 1, 1);
  scheduler.step();
  scheduler.step();  // torch's first call counts, the second multiplies
  const auto weights = values_of(parameters);
  run(*optimizer, parameters, 2, 2);  // at a rate of zero
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].second, weights[i]));
}

TEST_P(Contract, ANonFiniteGradientOfOneGroupChangesNothingAndIsCounted) {
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    const auto parameters = model();
    const NamedTensors first(parameters.begin(), parameters.begin() + 2);
    const NamedTensors second(parameters.begin() + 2, parameters.end());
    const auto optimizer = make(first, {{"skip_nonfinite", true}, {"weight_decay", 0.1}});
    optimizer->add_param_group(second, *make_options(GetParam().name, options()));
    run(*optimizer, parameters, 1, 2);
    const auto weights = values_of(parameters);
    auto state = state_of(*optimizer);
    set_gradients(parameters, 3);
    parameters.back().second.mutable_grad().view(-1)[0] = poison;
    optimizer->step();
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].second, weights[i]));
    EXPECT_EQ(optimizer->skipped().item<int64_t>(), 1);
    state["skipped"].add_(1);
    expect_equal_state(state_of(*optimizer), state);
    run(*optimizer, parameters, 3, 3);
    EXPECT_EQ(optimizer->skipped().item<int64_t>(), 1);
    EXPECT_FALSE(torch::equal(parameters[0].second, weights[0]));
    expect_finite(parameters);
  }
}

TEST_P(Contract, WithoutAGuardANonFiniteGradientSpoilsOnlyItsOwnParameter) {
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto parameters = model();
    const auto spoiled = copy_of(parameters);
    const auto optimizer = make(parameters), other = make(spoiled);
    for (uint64_t step = 1; step <= 3; ++step) {
      set_gradients(parameters, step);
      set_gradients(spoiled, step);
      if (step == 1) spoiled[0].second.mutable_grad().view(-1)[0] = poison;
      optimizer->step();
      other->step();
    }
    EXPECT_FALSE(spoiled[0].second.isfinite().all().item<bool>());
    for (size_t i = 1; i < parameters.size(); ++i)
      EXPECT_TRUE(torch::equal(spoiled[i].second, parameters[i].second)) << parameters[i].first;
  }
}

TEST_P(Contract, AStepOnConditionIsTheStepOrNothing) {
  const auto conditional = model();
  const auto plain = copy_of(conditional);
  const auto guarded = make(conditional), free = make(plain);
  for (const auto& [seed, apply] : std::vector<std::pair<uint64_t, bool>>{{1, true}, {2, false}, {3, true}}) {
    set_gradients(conditional, seed);
    guarded->step_if(torch::tensor(apply));
    if (!apply) continue;
    set_gradients(plain, seed);
    free->step();
  }
  expect_equal_weights(conditional, plain);
  EXPECT_EQ(guarded->skipped().item<int64_t>(), 1);
}

// `apply` keeps the decision to step on the device.
TEST_P(Contract, TheApplyFlagOfABucketIsAllOrNothing) {
  Json settings = options({{"weight_decay", 0.1}});
  if (GetParam().options.empty() && make_options(GetParam().name)->to_json().contains("eps") && !takes_matrices())
    settings["eps"] = 0;
  const auto chosen = make_options(GetParam().name, settings);
  const auto flagged = NamedTensors{{"a", parameter(random({6, 4}, 1, torch::kFloat32))},
                                    {"b", parameter(random({6, 4}, 2, torch::kFloat32))}};
  const auto plain = copy_of(flagged);
  const auto tensors = [](const NamedTensors& named) { return std::vector<Tensor>{named[0].second, named[1].second}; };
  torch::NoGradGuard no_grad;
  auto guarded = make_buckets(*chosen, tensors(flagged), {"a", "b"});
  auto free = make_buckets(*chosen, tensors(plain), {"a", "b"});
  ASSERT_EQ(guarded.size(), 1);
  const auto lr = torch::tensor(0.5, torch::kFloat64);
  const auto initial = values_of(flagged);
  const std::vector<Tensor> poisoned = {torch::full({6, 4}, std::numeric_limits<float>::quiet_NaN()),
                                        random({6, 4}, 3, torch::kFloat32)};
  step_bucket(*chosen, guarded[0], tensors(flagged), poisoned,
              {.lr = lr, .apply = torch::tensor(false), .grad_scale = {}});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(flagged[i].second, initial[i]));
  for (const auto& [name, stack] : guarded[0].state) EXPECT_TRUE(torch::equal(stack, free[0].state[name])) << name;

  const std::vector<Tensor> gradients = {random({6, 4}, 4, torch::kFloat32), random({6, 4}, 5, torch::kFloat32)};
  const std::vector<Tensor> doubled = {gradients[0] * 2, gradients[1] * 2};
  step_bucket(*chosen, guarded[0], tensors(flagged), doubled,
              {.lr = lr, .apply = torch::tensor(true), .grad_scale = torch::tensor(2.0)});
  step_bucket(*chosen, free[0], tensors(plain), gradients, {.lr = lr, .apply = {}, .grad_scale = {}});
  expect_equal_weights(flagged, plain);
  for (const auto& [name, stack] : guarded[0].state) EXPECT_TRUE(torch::equal(stack, free[0].state[name])) << name;
}

TEST_P(Contract, TakesEmptyListsAndEmptyMatrices) {
  const auto none = make({});
  none->step();
  std::stringstream stream;
  torch::save(*none, stream);
  torch::load(*none, stream);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 4}, {4, 0}, {0, 3, 4}}) {
    const auto parameters = NamedTensors{{"empty", parameter(torch::zeros(shape))}};
    const auto optimizer = make(parameters, {{"skip_nonfinite", true}});
    run(*optimizer, parameters, 1, 2);
    EXPECT_EQ(parameters[0].second.sizes(), at::IntArrayRef(shape));
  }
}

TEST_P(Contract, ListsEachOptionOnceWithTheTypeThatItsMessageNames) {
  const auto options = make_options(GetParam().name, GetParam().options);
  const Json json = options->to_json();
  EXPECT_EQ(make_options(GetParam().name, json)->to_json(), json);
  std::set<std::string> names;
  for (const auto& line : options->table()) {
    EXPECT_TRUE(names.insert(line.name).second) << line.name;
    EXPECT_MESSAGE(make_options(GetParam().name, {{line.name, {{"no", "value"}}}}),
                   "option '" + line.name + "': expected " + line.type + ", got {\"no\":\"value\"}");
  }
  EXPECT_EQ(names.size(), json.size());
}

std::string label_of(const ::testing::TestParamInfo<Case>& info) { return info.param.label; }
INSTANTIATE_TEST_SUITE_P(Optimizers, Contract, ::testing::ValuesIn(cases()), label_of);

class ExtremeGradients : public ::testing::TestWithParam<Case> {};

TEST_P(ExtremeGradients, GiveTheUpdateOfOrdinaryOnes) {  // orthogonalized updates do not see the scale
  for (const double scale : {1e30, 1e-30}) {
    NamedTensors ordinary;
    for (const auto& shape : std::vector<std::vector<int64_t>>{{6, 4}, {4, 10}, {1, 5}, {5, 1}}) {
      ordinary.emplace_back("w" + std::to_string(ordinary.size()), parameter(torch::zeros(shape)));
    }
    const auto extreme = copy_of(ordinary);
    const auto first = make_optimizer(GetParam().name, ordinary, GetParam().options);
    const auto second = make_optimizer(GetParam().name, extreme, GetParam().options);
    for (int64_t t = 1; t <= 3; ++t) {
      set_gradients(ordinary, t);
      set_gradients(extreme, t);
      for (const auto& [name, tensor] : extreme) tensor.mutable_grad().mul_(scale);
      first->step();
      second->step();
    }
    for (size_t i = 0; i < ordinary.size(); ++i) EXPECT_CLOSE(extreme[i].second, ordinary[i].second, 1e-4) << scale;
  }
}

std::vector<Case> scale_free() {
  std::vector<Case> list;
  for (const auto& item : cases()) {
    if (item.options.contains("damping_absolute")) continue;
    if (item.name == "prism" || item.name == "muon" || item.name == "tikhonovmuon") list.push_back(item);
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, ExtremeGradients, ::testing::ValuesIn(scale_free()), label_of);

}  // namespace
}  // namespace prism::test
