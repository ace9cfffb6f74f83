// Triggers every error message once.

#include "prism/io/safetensors.h"
#include "tests/io/temporary_folder.h"
#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

TEST(Messages, RefuseImpossibleOptions) {
  struct Line {
    const char* name;
    Json options;
    const char* message;
  };
  const Json schedule = {{"kind", "cosine"}, {"warmup", 10}, {"total", 10}};
  const std::vector<Line> lines = {
      {"sgd", Json::object(), "unknown optimizer 'sgd'; expected one of prism, muon, tikhonovmuon, adamw, "},
      {"muon", Json::array(), "muon: expected options as a JSON object, got []"},
      {"ssd",
       {{"momentum", 1}},
       "ssd: unknown option 'momentum'; the options are lr, weight_decay, maximize, skip_nonfinite, state_dtype, "
       "master_weights, capturable, split, fold, solver, coefficients, steps"},
      {"muon", {{"lr", "fast"}}, "option 'lr': expected number, got \"fast\""},
      {"muon", {{"steps", 2.5}}, "option 'steps': expected integer, got 2.5"},
      {"muon", {{"nesterov", 1}}, "option 'nesterov': expected boolean, got 1"},
      {"muon", {{"split", {1, "a"}}}, "option 'split': expected integers, got [1,\"a\"]"},
      {"adam", {{"betas", {0.9}}}, "option 'betas': expected pair, got [0.9]"},
      {"muon", {{"coefficients", 3}}, "option 'coefficients': expected coefficients, got 3"},
      {"prism", {{"gamma_schedule", {{"kid", 1}}}}, "option 'gamma_schedule': expected schedule, got {\"kid\":1}"},
      {"prism",
       {{"side", "top"}},
       "option 'side': expected short|left|right|both|long|inputs|balanced|whitened, got \"top\""},
      {"prism", {{"covariance", "full"}}, "option 'covariance': expected instant|ema|sketch|subspace, got \"full\""},
      {"muon", {{"solver", "qr"}}, "option 'solver': expected gram|stacked|exact, got \"qr\""},
      {"muon", {{"scale", "big"}}, "option 'scale': expected moonlight|spectral|none, got \"big\""},
      {"muon", {{"fold", "no"}}, "option 'fold': expected auto|flatten|batch, got \"no\""},
      {"muon", {{"state_dtype", "fp8"}}, "option 'state_dtype': expected auto|float32|float64|bfloat16, got \"fp8\""},
      {"muon", {{"lr", -1}}, "muon: lr must be 0 or more, got -1"},
      {"adamw", {{"weight_decay", -0.5}}, "adamw: weight_decay must be 0 or more, got -0.5"},
      {"soap", {{"capturable", true}}, "soap: capturable is for adamw, adam, adagrad, rmsprop, and for prism"},
      {"prism", {{"capturable", true}, {"covariance", "sketch"}}, "prism: capturable is for adamw"},
      {"prism", {{"capturable", true}, {"covariance", "subspace"}}, "prism: capturable is for adamw"},
      {"muon", {{"capturable", true}, {"solver", "exact"}}, "muon: capturable is for adamw"},
      {"tikhonovmuon", {{"capturable", true}, {"damping_absolute", 1}}, "tikhonovmuon: capturable is for adamw"},
      {"prism",
       {{"root_every", 2}},
       "prism: root_every is for side 'whitened' with covariance 'ema', got side 'short' and covariance 'instant'; "
       "leave it out"},
      {"prism", {{"covariance", "ema"}, {"covariance_every", 0}}, "prism: covariance_every must be 1 or more, got 0"},
      {"prism",
       {{"covariance_every", 2}},
       "prism: covariance_every is for averaged covariances, got covariance 'instant'; leave it out"},
      {"muon", {{"normalize", "columns"}}, "option 'normalize': expected none|rows, got \"columns\""},
      {"muon", {{"normalize", "rows"}, {"row_beta", 1}}, "muon: row_beta must be from 0 to below 1, got 1"},
      {"muon", {{"row_beta", 0.9}}, "muon: row_beta needs normalize 'rows', got 'none'; leave row_beta out"},
      {"tikhonovmuon", {{"damping_absolute", -1}}, "tikhonovmuon: damping_absolute must be 0 or more, got -1"},
      {"tikhonovmuon",
       {{"damping", 0.5}, {"damping_absolute", 2}},
       "tikhonovmuon: expected damping or damping_absolute, got both (0.5 and 2); leave one out"},
      {"muon", {{"split", {4, 0}}}, "muon: split takes the number of rows of each part, got 0"},
      {"muon", {{"steps", -1}}, "muon: steps must be from 0 (the length of the coefficient set) to 100, got -1"},
      {"prism",
       {{"steps", 1000000}},
       "prism: steps must be from 0 (the length of the coefficient set) to 100, got 1e+06"},
      {"muon",
       {{"solver", "exact"}, {"steps", 3}},
       "muon: solver 'exact' runs no iteration; leave out coefficients and steps"},
      {"ssd",
       {{"solver", "exact"}, {"coefficients", "jordan"}},
       "ssd: solver 'exact' runs no iteration; leave out coefficients and steps"},
      {"muon", {{"momentum", 1}}, "muon: momentum must be from 0 to below 1, got 1"},
      {"prism", {{"gamma", -1}}, "prism: gamma must be 0 or more, got -1"},
      {"prism", {{"covariance_beta", 1}}, "prism: covariance_beta must be from 0 to below 1, got 1"},
      {"prism", {{"rank", 0}}, "prism: rank must be 1 or more, got 0"},
      {"prism",
       {{"rank", 8}},
       "prism: rank is for covariance 'sketch' and 'subspace', got covariance 'instant'; leave it out"},
      {"prism",
       {{"covariance_beta", 0.5}},
       "prism: covariance_beta is for averaged covariances, got covariance 'instant'; leave it out"},
      {"shampoo",
       {{"state_dtype", "bfloat16"}},
       "shampoo: state_dtype 'bfloat16' is for momenta, but shampoo has none; leave it out"},
      {"prism",
       {{"solver", "stacked"}, {"covariance", "ema"}},
       "prism: solver 'stacked' needs covariance 'instant', got 'ema'; set that, or use solver 'gram' or 'exact'"},
      {"prism",
       {{"solver", "stacked"}, {"side", "both"}},
       "prism: solver 'stacked' has no side 'both'; use solver 'gram' or 'exact'"},
      {"prism",
       {{"steps", 3}, {"side", "both"}},
       "prism: side 'both' uses the coupled inverse root; leave out coefficients and steps"},
      {"prism", {{"gamma_schedule", schedule}}, "prism: gamma_schedule: total must be more than warmup, 10, got 10"},
      {"prism", {{"gamma_schedule", {{"warmup", -1}}}}, "prism: gamma_schedule: warmup must be 0 or more, got -1"},
      {"prism",
       {{"gamma_schedule", {{"floor", 2}}}},
       "prism: gamma_schedule: floor must be a fraction of the peak from 0 to 1, got 2"},
      {"prism",
       {{"gamma_schedule", {{"total", 9}}}},
       "prism: gamma_schedule: a constant schedule takes no total and no floor, got 9 and 0"},
      {"prism",
       {{"gamma_schedule", {{"decay", 9}}}},
       "prism: gamma_schedule: decay must be 0 (it belongs to wsd), got 9"},
      {"prism",
       {{"gamma_schedule", {{"kind", "wsd"}, {"total", 9}}}},
       "prism: gamma_schedule: decay must be from 1 to total − warmup, got 0"},
      {"tikhonovmuon", {{"damping", -1}}, "tikhonovmuon: damping must be 0 or more, got -1"},
      {"tikhonovmuon",
       {{"solver", "stacked"}},
       "tikhonovmuon: solver 'stacked' is not available here; use 'gram' or 'exact'"},
      {"adam", {{"betas", {0.9, 1}}}, "adam: betas must be from 0 to below 1, got (0.9, 1)"},
      {"adamw", {{"eps", -1}}, "adamw: eps must be 0 or more, got -1"},
      {"adagrad", {{"lr_decay", -1}}, "adagrad: lr_decay must be 0 or more, got -1"},
      {"adagrad", {{"initial_accumulator_value", -1}}, "adagrad: initial_accumulator_value must be 0 or more, got -1"},
      {"adagrad", {{"eps", -1}}, "adagrad: eps must be 0 or more, got -1"},
      {"rmsprop", {{"alpha", 1.5}}, "rmsprop: alpha must be from 0 to 1, got 1.5"},
      {"rmsprop", {{"eps", -1}}, "rmsprop: eps must be 0 or more, got -1"},
      {"rmsprop", {{"momentum", -1}}, "rmsprop: momentum must be 0 or more, got -1"},
      {"rmsspectral", {{"beta", 1}}, "rmsspectral: beta must be from 0 to below 1, got 1"},
      {"rmsspectral", {{"eps", 0}}, "rmsspectral: eps must be more than 0, got 0"},
      {"adaspectral", {{"eps", 0}}, "adaspectral: eps must be more than 0, got 0"},
      {"shampoo", {{"beta", 2}}, "shampoo: beta must be from 0 to 1, got 2"},
      {"shampoo", {{"solver", "stacked"}}, "shampoo: solver 'stacked' computes no roots; use 'gram' or 'exact'"},
      {"soap", {{"betas", {1, 0.9}}}, "soap: betas must be from 0 to below 1, got (1, 0.9)"},
      {"soap", {{"shampoo_beta", 1}}, "soap: shampoo_beta must be from 0 to below 1, got 1"},
      {"soap", {{"eps", -1}}, "soap: eps must be 0 or more, got -1"},
      {"soap", {{"refresh", 0}}, "soap: refresh must be 1 or more, got 0"},
  };
  for (const auto& line : lines) EXPECT_MESSAGE(make_options(line.name, line.options), line.message);
}

TEST(Messages, RefuseWhatIsNotANumber) {
  const double nan = std::nan("");
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& line : options->table()) {
      if (line.type != "number") continue;
      EXPECT_MESSAGE(make_options(name, {{line.name, nan}}), line.name + " must be");
    }
  }
}

NamedTensors one(const Tensor& tensor) { return {{"w", tensor}}; }

TEST(Messages, NameTheParameterThatDoesNotFit) {
  const auto matrix = parameter(torch::zeros({6, 4}));
  EXPECT_MESSAGE(Prism(one(parameter(torch::zeros({6})))),
                 "prism: 'w' must be a matrix, got shape [6]; route it to adamw");
  EXPECT_MESSAGE(Prism(one(matrix), PrismOptions().split({4, 4})),
                 "prism: 'w': split [4, 4] must add up to its 6 rows, got 8");
  EXPECT_MESSAGE(AdamW(one(torch::zeros({2}, torch::kLong))),
                 "adamw: 'w' must hold real floating-point numbers, got Long");
  EXPECT_MESSAGE(AdamW(one(torch::zeros({2}, torch::kComplexFloat))),
                 "adamw: 'w' must hold real floating-point numbers, got ComplexFloat");
  EXPECT_MESSAGE(AdamW(one(Tensor{})), "parameter 'w' is undefined");
  EXPECT_MESSAGE(AdamW(NamedTensors({{"w", matrix}, {"w", parameter(torch::zeros({2}))}})),
                 "two parameters are named 'w'; names must be unique");
  EXPECT_MESSAGE(AdamW(NamedTensors({{"w", matrix}, {"v", matrix}})),
                 "parameter 'v' appears more than once; give each parameter to one group");
}

TEST(Messages, NameTheGroupWithOptionsOfAnotherLibrary) {
  const auto a = parameter(torch::zeros({6, 4}));
  const auto b = parameter(torch::zeros({6, 4}));
  Prism optimizer(NamedTensors{{"a", a}});
  EXPECT_MESSAGE(
      optimizer.add_param_group(
          torch::optim::OptimizerParamGroup({b}, std::make_unique<torch::optim::SGDOptions>(0.1))),
      "parameter group 1 must carry options of a prism optimizer, such as prism::PrismOptions, got another type");
}

TEST(Messages, ARefusedGroupIsNotAdded) {
  const auto a = parameter(torch::zeros({6, 4}));
  Prism optimizer(NamedTensors{{"a", a}});
  EXPECT_MESSAGE(optimizer.add_param_group(NamedTensors{{"a", parameter(torch::zeros({6, 4}))}}, PrismOptions()),
                 "two parameters are named 'a'");
  EXPECT_EQ(optimizer.names().size(), 1);
  EXPECT_EQ(optimizer.param_groups().size(), 1);
  optimizer.step();
}

TEST(Messages, NameTheSparseGradient) {
  const auto W = parameter(torch::zeros({6, 4}));
  AdamW optimizer(one(W));
  W.mutable_grad() = torch::ones({6, 4}).to_sparse();
  EXPECT_MESSAGE(optimizer.step(), "adamw: the gradient of 'w' must be dense, got Sparse; make it dense first");
}

TEST(Messages, RefuseOptionsThatGiveStateAnotherShape) {
  const auto W = parameter(torch::zeros({6, 4}));
  Prism whole(one(W));
  static_cast<PrismOptions&>(whole.param_groups()[0].options()).split({2, 4});
  EXPECT_MESSAGE(whole.step(),
                 "prism: 'w' must keep parts of shape [6, 4], for which its state was created; set split and fold when "
                 "you create the optimizer");
  Prism sided(one(W), PrismOptions().covariance(CovarianceKind::Ema).side(Side::Left));
  static_cast<PrismOptions&>(sided.param_groups()[0].options()).side(Side::Right);
  EXPECT_MESSAGE(sided.step(),
                 "state 'covariance' of 'w' is of shape [6, 6], but its present options ask for [4, 4]; set options "
                 "that change the shape of state when you create the optimizer");
}

TEST(Options, ThatBeginToNeedStateMakeIt) {
  const auto W = parameter(torch::zeros({6, 4}));
  Adam adam(one(W));
  W.mutable_grad() = torch::ones({6, 4});
  adam.step();
  const auto before = state_of(adam);
  static_cast<AdamOptions&>(adam.param_groups()[0].options()).amsgrad(true);
  adam.make_state();
  auto after = state_of(adam);
  EXPECT_TRUE(torch::equal(after.at("state.w.max_exp_avg_sq"), torch::zeros({6, 4})));
  after.erase("state.w.max_exp_avg_sq");
  expect_equal_state(after, before);
  static_cast<AdamOptions&>(adam.param_groups()[0].options()).amsgrad(false);
  adam.make_state();
  expect_equal_state(state_of(adam), before);
}

TEST(Optimizer, FollowsAParameterThatMovedAlone) {
  const auto a = parameter(torch::ones({6, 4}));
  const auto b = parameter(torch::ones({6, 4}));
  AdamW optimizer(NamedTensors{{"a", a}, {"b", b}});
  set_gradients({{"a", a}, {"b", b}}, 1);
  optimizer.step();
  const auto before = state_of(optimizer);
  b.set_data(b.detach().to(torch::kFloat64));
  set_gradients({{"a", a}, {"b", b}}, 2);
  optimizer.make_state();
  const auto after = state_of(optimizer);
  EXPECT_EQ(after.at("state.b.exp_avg").scalar_type(), torch::kFloat64);
  EXPECT_TRUE(torch::equal(after.at("state.b.exp_avg"), before.at("state.b.exp_avg").to(torch::kFloat64)));
  EXPECT_TRUE(torch::equal(after.at("state.a.exp_avg"), before.at("state.a.exp_avg")));
  optimizer.step();
}

TEST(Messages, NameWhatRoutingCannotPlace) {
  const auto W = parameter(torch::zeros({6, 4}));
  Rule empty;
  empty.label = "mine";
  Rule bad = empty;
  bad.options = PrismOptions().copy();
  bad.pattern = "(";
  Rule narrow = bad;
  narrow.pattern = "^block";
  EXPECT_MESSAGE(Mixed(one(W), Rules{}), "mixed: expected at least one rule with options, got none");
  EXPECT_MESSAGE(Routing({empty}, one(W)), "routing: rule 'mine' has no options");
  EXPECT_MESSAGE(Routing({bad}, one(W)), "routing: the pattern of rule 'mine' is not a regular expression: '('");
  EXPECT_MESSAGE(Routing({narrow}, one(W)), "routing: no rule matches 'w' of shape [6, 4]; add a rule for it");
  EXPECT_MESSAGE(Mixed(std::vector<Tensor>{W}, PrismOptions(), AdamWOptions()),
                 "routing: parameters must have names; pass model->named_parameters()");
}

TEST(Messages, RefuseToClipToNothing) {
  EXPECT_MESSAGE(clip_grad_norm({}, 0), "clip_grad_norm: max_norm must be more than 0, got 0");
}

TEST(Messages, SayWhenSpectraCanBeAskedFor) {
  const Prism prism(one(parameter(torch::zeros({6, 4}))));
  EXPECT_MESSAGE(prism.spectra(), "spectra: no matrix has a gradient; call it between step() and zero_grad()");
}

class LoadMessages : public ::testing::Test {
 protected:
  static NamedTensors named(const std::vector<std::string>& names, at::IntArrayRef shape = {6, 4}) {
    NamedTensors parameters;
    for (const auto& name : names) parameters.emplace_back(name, parameter(torch::zeros(shape)));
    return parameters;
  }
};

TEST_F(LoadMessages, NameTheParametersThatDiffer) {
  const Prism saved(named({"a", "b"}));
  EXPECT_MESSAGE(Prism(named({"a", "c"})).restore(saved.snapshot()),
                 "load: the saved state has no parameter 'c'; it has 'b' instead");
  EXPECT_MESSAGE(Prism(named({"a", "b", "c"})).restore(saved.snapshot()), "load: the saved state has no parameter 'c'");
  EXPECT_MESSAGE(Prism(named({"a"})).restore(saved.snapshot()),
                 "load: the saved state has 'b', which this optimizer does not have");
  EXPECT_MESSAGE(Prism(named({"a", "b", "c", "d", "e", "f", "g", "h", "i"})).restore(saved.snapshot()),
                 "load: the saved state has no parameter 'c', 'd', 'e', 'f', 'g' and 2 more");
}

TEST_F(LoadMessages, NameTheShapeTypeAndOptimizerThatDiffer) {
  const Prism saved(named({"a"}));
  EXPECT_MESSAGE(Prism(named({"a"}, {6, 5})).restore(saved.snapshot()),
                 "load: state 'momentum' of 'a' must be Float of shape [6, 5], got Float of shape [6, 4]");
  auto whole_numbers = saved.snapshot();
  whole_numbers.tensors[0].second = torch::zeros({6, 4}, torch::kLong);
  EXPECT_MESSAGE(Prism(named({"a"})).restore(whole_numbers),
                 "load: state 'momentum' of 'a' must be Float of shape [6, 4], got Long of shape [6, 4]");
  EXPECT_MESSAGE(Muon(named({"a"})).restore(saved.snapshot()),
                 "load: 'a' was saved by prism, but is optimized by muon here");
  Prism apart(named({"a"}));
  apart.add_param_group(named({"b"}), PrismOptions());
  EXPECT_MESSAGE(Prism(named({"a", "b"})).restore(apart.snapshot()),
                 "load: 'a' and 'b' share a group here, but were saved in two");
}

TEST_F(LoadMessages, NameWhatIsMissing) {
  const Prism saved(named({"a"}));
  auto snapshot = saved.snapshot();
  Prism target(named({"a"}));
  snapshot.header["format"] = 9;
  EXPECT_MESSAGE(target.restore(snapshot), "load: expected state of format 1, got 9");
  EXPECT_MESSAGE(target.restore({Json::object(), {}}), "load: expected state of format 1, got none");
  snapshot = saved.snapshot();
  snapshot.tensors.erase(snapshot.tensors.begin());
  EXPECT_MESSAGE(target.restore(snapshot), "load: the saved state of 'a' has no 'momentum'");
  snapshot = saved.snapshot();
  snapshot.tensors.pop_back();
  EXPECT_MESSAGE(target.restore(snapshot), "load: the saved state has no 'skipped'");
}

TEST_F(LoadMessages, NameTheFileOfAnotherKind) {
  const io::TemporaryFolder folder;
  const auto path = folder / "x.safetensors";
  Prism target(named({"a"}));
  std::stringstream stream;
  torch::save(torch::ones({2}), stream);
  EXPECT_MESSAGE(torch::load(target, stream), "load: the archive holds no state of a prism optimizer");
  const float number = 1;
  const io::TensorView view{"x", "F32", {1}, reinterpret_cast<const std::byte*>(&number), sizeof(number)};
  io::write_safetensors(path, std::span(&view, 1), {});
  EXPECT_MESSAGE(target.load_safetensors(path), "load: " + path.string() + " holds no state of a prism optimizer");
  const io::TensorView integers{"x", "I32", {1}, reinterpret_cast<const std::byte*>(&number), sizeof(number)};
  io::write_safetensors(path, std::span(&integers, 1), {{"prism", "{}"}});
  EXPECT_MESSAGE(target.load_safetensors(path),
                 "load: " + path.string() + ": 'x' is I32, which no optimizer state uses");
}

TEST_F(LoadMessages, LeaveTheOptimizerAsItWas) {
  const auto parameters = named({"a", "b"});
  Prism target(parameters, PrismOptions(0.5));
  set_gradients(parameters, 1);
  target.step();
  const auto before = state_of(target);
  auto snapshot = Prism(named({"a", "b"}), PrismOptions(0.25)).snapshot();
  snapshot.tensors[1].second = torch::zeros({3, 3});
  EXPECT_MESSAGE(target.restore(snapshot), "load: state 'momentum' of 'b' must be");
  expect_equal_state(state_of(target), before);
  EXPECT_EQ(target.group_options(0).lr(), 0.5);
}

}  // namespace
}  // namespace prism::test
