// The duties of every optimizer about its state: saving, loading, types and master weights.

#include <map>

#include "tests/io/temporary_folder.h"
#include "tests/optim/contract.h"

namespace prism::test {
namespace {

// Saves the first half of a run, loads it into an optimizer that has the same parameters in another order, and compares
// the second halves.
void expect_bitwise_resume(const std::function<std::unique_ptr<Optimizer>(const NamedTensors&, double lr)>& make,
                           const NamedTensors& parameters,
                           const std::function<void(const Optimizer&, Optimizer&)>& transfer) {
  const auto run = [](Optimizer& optimizer, const NamedTensors& tensors, int64_t first, int64_t last) {
    for (int64_t t = first; t <= last; ++t) {
      set_gradients(tensors, t);
      optimizer.step();
    }
  };
  const auto original = make(parameters, 0.125);
  run(*original, parameters, 1, 3);
  NamedTensors copies = copy_of(parameters);
  std::reverse(copies.begin(), copies.end());
  const auto resumed = make(copies, 7.0);  // the saved rate must win
  transfer(*original, *resumed);
  expect_equal_state(state_of(*resumed), state_of(*original));
  run(*original, parameters, 4, 6);
  run(*resumed, copies, 4, 6);
  expect_equal_weights(copies, parameters);
  expect_equal_state(state_of(*resumed), state_of(*original));
}

TEST_P(Contract, ResumesBitForBitThroughTorchSave) {
  const auto transfer = [](const Optimizer& from, Optimizer& to) {
    std::stringstream stream;
    torch::save(from, stream);
    torch::load(to, stream);
  };
  const auto one_group = [&](const NamedTensors& parameters, double lr) { return make(parameters, {{"lr", lr}}); };
  expect_bitwise_resume(one_group, model(), transfer);
}

TEST_P(Contract, ResumesBitForBitThroughSafetensorsWithTwoGroups) {
  const io::TemporaryFolder folder;
  const auto path = folder / "state.safetensors";
  const auto transfer = [&](const Optimizer& from, Optimizer& to) {
    from.save_safetensors(path);
    to.load_safetensors(path);
    EXPECT_EQ(to.group_options(0).to_json(), from.group_options(0).to_json());
    EXPECT_EQ(to.group_options(1).to_json(), from.group_options(1).to_json());
  };
  const auto two_groups = [&](const NamedTensors& parameters, double lr) {
    NamedTensors tall;
    NamedTensors rest;
    for (const auto& item : parameters) (item.first.starts_with("tall") ? tall : rest).push_back(item);
    auto optimizer = make(tall, {{"lr", lr}});
    optimizer->add_param_group(rest, *make_options(GetParam().name, options({{"lr", lr / 2}, {"weight_decay", 0.1}})));
    return optimizer;
  };
  expect_bitwise_resume(two_groups, model(), transfer);
}

TEST_P(Contract, ResumesBitForBitWithBFloat16WeightsStateAndMasters) {
  const auto transfer = [](const Optimizer& from, Optimizer& to) { to.restore(from.snapshot()); };
  const auto with_masters = [&](const NamedTensors& parameters, double lr) {
    return make(parameters,
                {{"lr", lr}, {"master_weights", true}, {"state_dtype", has_momenta() ? "bfloat16" : "auto"}});
  };
  expect_bitwise_resume(with_masters, model(torch::kBFloat16), transfer);
}

TEST_P(Contract, ASnapshotDoesNotChangeWithTheOptimizer) {
  const auto parameters = model();
  const auto optimizer = make(parameters);
  run(*optimizer, parameters, 1, 1);
  const auto expected = state_of(*optimizer);
  const auto snapshot = optimizer->snapshot();
  run(*optimizer, parameters, 2, 2);
  optimizer->restore(snapshot);
  expect_equal_state(state_of(*optimizer), expected);
}

TEST_P(Contract, StateIsNoPartOfTheGraph) {
  const auto parameters = model(torch::kBFloat16);
  const auto optimizer = make(parameters, {{"master_weights", true}});
  for (const auto& [name, tensor] : optimizer->snapshot().tensors) EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST_P(Contract, TheStateOfALaterGroupExistsBeforeItsFirstStep) {
  const auto parameters = model();
  const auto optimizer = make({parameters[0]}, {{"lr", 0.125}});
  run(*optimizer, {parameters[0]}, 1, 2);
  optimizer->add_param_group(NamedTensors{parameters[1]}, *make_options(GetParam().name, options({{"lr", 0.25}})));
  std::vector<Tensor> bare = {parameters[2].second};
  optimizer->add_param_group(torch::optim::OptimizerParamGroup(bare));  // torch's: defaults, named by position
  EXPECT_EQ(optimizer->names(), (std::vector<std::vector<std::string>>{{"tall.0"}, {"wide.0"}, {"parameter.2"}}));
  EXPECT_EQ(optimizer->group_options(1).lr(), 0.25);
  EXPECT_EQ(optimizer->group_options(2).lr(), 0.125);
  const auto untouched = state_of(*optimizer);
  const auto weights = values_of(parameters);
  std::stringstream stream;
  torch::save(*optimizer, stream);
  torch::load(*optimizer, stream);
  expect_equal_state(state_of(*optimizer), untouched);
  run(*optimizer, {parameters[0], parameters[1], parameters[2]}, 3, 4);
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(torch::equal(parameters[i].second, weights[i])) << parameters[i].first;

  // The later group steps like an optimizer of its own.
  const auto alone = NamedTensors{{"wide.0", parameter(weights[1])}};
  const auto other = make(alone, {{"lr", 0.25}});
  run(*other, alone, 3, 4);
  EXPECT_CLOSE(alone[0].second, parameters[1].second, 1e-6);
}

TEST_P(Contract, KeepsItsStateInTheTypeAskedFor) {
  const std::map<std::string, at::ScalarType> types = {
      {"float32", torch::kFloat32}, {"float64", torch::kFloat64}, {"bfloat16", torch::kBFloat16}};
  for (const auto& [word, type] : types) {
    if (type == torch::kBFloat16 && !has_momenta()) continue;
    for (const auto weights : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
      const auto parameters = model(weights);
      const auto optimizer = make(parameters, {{"state_dtype", word}});
      run(*optimizer, parameters, 1, 3);
      expect_finite(parameters);
      for (const auto& [name, tensor] : state_of(*optimizer)) {
        if (!name.ends_with(".momentum") && !name.ends_with(".exp_avg_sq")) continue;
        EXPECT_EQ(tensor.scalar_type(), type) << name;
      }
    }
  }
}

TEST_P(Contract, MasterWeightsTakeStepsTooSmallForBFloat16) {
  const auto parameters = model(torch::kBFloat16);
  NamedTensors reference;
  for (const auto& [name, tensor] : parameters)
    reference.emplace_back(name, parameter(tensor.detach().to(torch::kFloat32)));
  const Json small = {{"lr", 1e-4}, {"weight_decay", 0.1}};
  Json with_masters = small;
  with_masters["master_weights"] = true;
  const auto optimizer = make(parameters, with_masters);
  const auto full = make(reference, small);
  run_both(*optimizer, parameters, *full, reference, 4);
  const auto state = state_of(*optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = reference[i];
    const auto master = state.at("state." + name + ".master");
    if (couples_decay()) {  // its gradient sees the rounded weight
      EXPECT_CLOSE(master.view(tensor.sizes()), tensor, 1e-3) << name;
    } else {
      EXPECT_TRUE(torch::equal(master.view(tensor.sizes()), tensor)) << name;
    }
    EXPECT_TRUE(torch::equal(master.view(tensor.sizes()).to(torch::kBFloat16), parameters[i].second)) << name;
  }
}

TEST_P(Contract, WeightsWrittenSinceTheLastStepReplaceTheirMasters) {
  const auto parameters = model(torch::kBFloat16);
  const auto optimizer = make(parameters, {{"master_weights", true}, {"weight_decay", 0}});
  run(*optimizer, parameters, 1, 2);
  const auto before = state_of(*optimizer);
  std::vector<Tensor> written;  // half of the elements of each, and whole tensors of one bucket alone
  {
    torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : parameters) {
      Tensor& mask = written.emplace_back(random(tensor.sizes(), 500).gt(name == "tall.1" ? -1e9 : 0));
      tensor.copy_(torch::where(mask, random(tensor.sizes(), 600, torch::kBFloat16), tensor));
    }
  }
  const auto loaded = values_of(parameters);
  set_gradients(parameters, 3);
  optimizer->step_if(torch::tensor(false));
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].second, loaded[i]));
  optimizer->param_groups()[0].options().set_lr(0);
  optimizer->step();
  const auto after = state_of(*optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].first;
    const Tensor& tensor = parameters[i].second;
    EXPECT_TRUE(torch::equal(tensor, loaded[i])) << name;
    const auto master = [&](const std::map<std::string, Tensor>& state) {
      return state.at("state." + name + ".master").view(tensor.sizes());
    };
    EXPECT_TRUE(
        torch::equal(master(after).masked_select(written[i]), loaded[i].to(torch::kFloat).masked_select(written[i])));
    const Tensor kept = written[i].logical_not();  // keeps what rounding hides
    EXPECT_TRUE(torch::equal(master(after).masked_select(kept), master(before).masked_select(kept))) << name;
  }
}

TEST_P(Contract, FollowsParametersMovedToAnotherType) {
  for (const auto& [from, to] :
       {std::pair(torch::kFloat32, torch::kFloat64), std::pair(torch::kFloat64, torch::kFloat32),
        std::pair(torch::kFloat32, torch::kBFloat16)}) {
    const auto parameters = model(from);
    const auto optimizer = make(parameters, {{"master_weights", true}});
    run(*optimizer, parameters, 1, 2);
    const auto before = state_of(*optimizer);
    NamedTensors fresh;
    for (const auto& [name, tensor] : parameters) {
      tensor.mutable_grad() = Tensor();
      tensor.set_data(tensor.detach().to(to));  // what Module::to does
      fresh.emplace_back(name, parameter(tensor.detach()));
    }
    optimizer->make_state();
    const auto after = state_of(*optimizer);
    for (const auto& [name, tensor] : before)
      EXPECT_TRUE(torch::equal(after.at(name), tensor.to(after.at(name).scalar_type()))) << name;
    for (const auto& [name, tensor] : state_of(*make(fresh, {{"master_weights", true}}))) {
      EXPECT_EQ(after.at(name).scalar_type(), tensor.scalar_type()) << name;
    }
    run(*optimizer, parameters, 3, 4);
    expect_finite(parameters);
  }
}

}  // namespace
}  // namespace prism::test
