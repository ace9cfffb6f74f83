#include "prism/train/config.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "prism/io/error.h"
#include "prism/optim/adam.h"
#include "prism/optim/registry.h"
#include "prism/train/run_folder.h"
#include "tests/train/helpers.h"

using namespace prism;
using train::make_config;

namespace {

io::Config with(const std::vector<std::string>& settings) {
  auto config = make_config();
  for (const auto& setting : settings) config.set(setting);
  return config;
}

}  // namespace

TEST(TrainConfig, HasEveryOptionOfEveryOptimizerUnderOneType) {
  std::map<std::string, std::string> types;
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& option : options->table()) {
      EXPECT_EQ(types.emplace(option.name, option.type).first->second, option.type) << name << " " << option.name;
    }
  }
  const std::set<std::string> others = {"maximize", "skip_nonfinite", "capturable",    "split",
                                        "fold",     "master_weights", "gamma_schedule"};
  for (const auto& [name, type] : types) {
    if (others.contains(name)) continue;
    EXPECT_NE(train::config_table().find("optimizer." + name), nullptr) << name;
  }
}

TEST(TrainConfig, GivesTheOptimizerItsDefaultsWhereNothingIsSaid) {
  for (const auto& name : optimizer_names()) {
    const auto pair = train::optimizer_options(with({"optimizer.name=" + name}));
    auto expected = make_options(name);
    if (!expected->takes_matrices()) expected = make_options(name, {{"lr", expected->lr()}});
    expected->use_mixed_defaults();
    EXPECT_EQ(pair.matrices->to_json(), expected->to_json()) << name;
    EXPECT_EQ(pair.rest->name(), "adamw");
    EXPECT_EQ(pair.rest->to_json()["betas"], Json({0.9, 0.95}));
  }
  EXPECT_EQ(train::optimizer_options(with({"optimizer.name=adamw"})).matrices->to_json()["betas"], Json({0.9, 0.95}));
}

TEST(TrainConfig, PassesEveryKindOfValueOn) {
  const auto pair = train::optimizer_options(
      with({"optimizer.lr=0.3", "optimizer.gamma=2", "optimizer.side=left", "optimizer.nesterov=false",
            "optimizer.covariance=ema", "optimizer.coefficients=you", "optimizer.steps=3",
            "optimizer.gamma_schedule=linear", "optimizer.gamma_floor=0.5", "train.steps=77", "optimizer.aux_lr=0.1",
            "optimizer.aux_betas=0.8,0.9", "optimizer.aux_weight_decay=0.2"}));
  const auto json = pair.matrices->to_json();
  EXPECT_EQ(json["lr"], 0.3);
  EXPECT_EQ(json["gamma"], 2.0);
  EXPECT_EQ(json["side"], "left");
  EXPECT_EQ(json["nesterov"], false);
  EXPECT_EQ(json["covariance"], "ema");
  EXPECT_EQ(json["coefficients"], "you");
  EXPECT_EQ(json["steps"], 3);
  EXPECT_EQ(json["gamma_schedule"]["kind"], "linear");
  EXPECT_EQ(json["gamma_schedule"]["total"], 77);
  EXPECT_EQ(pair.rest->to_json()["betas"], Json({0.8, 0.9}));
  EXPECT_EQ(pair.rest->lr(), 0.1);
  EXPECT_EQ(pair.rest->weight_decay(), 0.2);
}

TEST(TrainConfig, TakesTheRateOfTheRestAsANumberOrAsAMultipleOfTheMatrices) {
  const auto rate = [](const std::vector<std::string>& settings) {
    return train::optimizer_options(with(settings)).rest->lr();
  };
  EXPECT_EQ(rate({}), 0.02);
  EXPECT_EQ(rate({"optimizer.lr=0.3"}), 0.02);
  EXPECT_EQ(rate({"optimizer.name=adamw", "optimizer.lr=0.3"}), 0.3) << "one rate for AdamW on all parameters";
  EXPECT_EQ(rate({"optimizer.aux_lr=0.1"}), 0.1);
  EXPECT_DOUBLE_EQ(rate({"optimizer.lr=0.3", "optimizer.aux_ratio=0.5"}), 0.15);
  EXPECT_DOUBLE_EQ(rate({"optimizer.name=adamw", "optimizer.aux_ratio=2"}), 2e-3);
  EXPECT_DOUBLE_EQ(rate({"optimizer.lr=0.3", "optimizer.aux_lr=0.1", "optimizer.aux_lr=auto", "optimizer.aux_ratio=1"}),
                   0.3);
  const auto message = io::message_of<Error>([&] { rate({"optimizer.aux_lr=0.1", "optimizer.aux_ratio=1"}); });
  EXPECT_NE(message.find("--set optimizer.aux_ratio=1: optimizer.aux_ratio: expected either optimizer.aux_ratio or "
                         "optimizer.aux_lr, got both (--set optimizer.aux_lr=0.1: optimizer.aux_lr)"),
            std::string::npos)
      << message;
}

TEST(TrainConfig, KeepsTheRateOfTheRestWhenItIsWrittenAndReadBack) {
  for (const auto& [setting, rate] : std::map<std::string, double>{
           {"optimizer.gamma=1", 0.02}, {"optimizer.aux_lr=0.1", 0.1}, {"optimizer.aux_ratio=0.5", 0.15}}) {
    auto config = with({"optimizer.lr=0.3", setting, "data.path=x", "run.out=y"});
    train::resolve(config, 500);
    auto again = make_config();
    again.read_toml(config.to_toml(), "written");
    EXPECT_DOUBLE_EQ(train::optimizer_options(again).rest->lr(), rate) << setting;
  }
  // A file from before the ratio existed holds only the number; a run that began with it goes on.
  auto before = with({"optimizer.aux_lr=0.02"}), now = with({"data.path=x", "run.out=y"});
  train::resolve(now, 500);
  EXPECT_EQ(before.value("optimizer.aux_lr"), now.value("optimizer.aux_lr"));
  EXPECT_EQ(before.value("optimizer.aux_ratio"), now.value("optimizer.aux_ratio"));
}

TEST(TrainConfig, AFileFromBeforeAnOptionExistedIsOfTheSameRun) {
  for (const auto& name : optimizer_names()) {
    auto config = with({"optimizer.name=" + name, "data.path=x", "run.out=y"});
    train::resolve(config, 500);
    std::istringstream lines(config.to_toml());
    std::string old;
    for (std::string line; std::getline(lines, line);) {
      bool is_new = false;
      for (const char* key :
           {"aux_ratio", "covariance_every", "normalize", "row_beta", "fixed_norm", "damping_absolute"})
        is_new |= line.starts_with(std::string(key) + " =");
      if (!is_new) old += line + "\n";
    }
    auto written = make_config();
    written.read_toml(old, "written");
    EXPECT_EQ(io::message_of<Error>([&] { train::check_same_run(config, written, "y"); }), "nothing was thrown")
        << name;
  }
}

TEST(TrainConfig, RefusesAnOptionTheOptimizerDoesNotHave) {
  const auto message = io::message_of<Error>([] {
    train::optimizer_options(with({"optimizer.name=adamw", "optimizer.gamma=2"}));
  });
  EXPECT_NE(message.find("--set optimizer.gamma=2: optimizer.gamma: adamw has no such option"), std::string::npos)
      << message;
}

TEST(TrainConfig, SaysWhatIsWrongWithImpossibleValues) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"data.path=x", "train.batch=6", "train.accumulate=4"}, "expected a divisor of train.batch = 6, got 4"},
      {{"data.path=x", "optimizer.momentum=1.5"}, "momentum"},
      {{"data.path=x", "schedule.kind=cosine", "schedule.warmup=2000", "train.steps=100"}, "warmup"},
      {{"data.path=x", "model.width=1e9"},
       "--set model.width=1e9: model.width: expected at most 1048576, got 1000000000"},
      {{"data.path=x", "train.context=1e9"}, "train.context: expected at most 1048576, got 1000000000"},
      {{"data.path=x", "data.vocab=1e9"}, "data.vocab: expected at most 1048576, got 1000000000"},
      {{"data.path=x", "model.heads=4", "model.kv_heads=3"},
       "model.kv_heads: expected a divisor of model.heads = 4, got 3"},
      {{"data.path=x", "optimizer.weight_decay=1e300"}, "optimizer.weight_decay: expected at most 2e+32"},
      {{"data.path=x", "optimizer.aux_weight_decay=1e300"}, "optimizer.aux_weight_decay: expected at most 5e+31"},
      {{"data.path=[{path=\"x\",weight=1e300}]"}, "with a weight > 0 and ≤ 1e6, none of them empty, got"},
      {{"data.path=x", "schedule.decay=5"}, "needs schedule.kind = \"wsd\", got"},
      {{}, "data.path: expected"},
  };
  for (const auto& [settings, expected] : cases) {
    const auto message = io::message_of<Error>([&wanted = settings] { train::check(with(wanted)); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST(TrainConfig, TakesPathsWithAndWithoutWeights) {
  auto config = make_config();
  config.read_toml("data.path = ['a', {path = 'b', weight = 2}, {path = 'c'}, {weight = 1.0, path = 'd'}]", "test");
  auto again = make_config();
  again.read_toml(config.to_toml(), "written");
  for (const auto& read : {config, again, with({R"(data.path=["a", {path = "b", weight = 2}, "c", "d"])"})}) {
    const auto sources = train::data_sources(read);
    ASSERT_EQ(sources.size(), 4u);
    EXPECT_EQ(sources[0].path, "a");
    EXPECT_EQ(sources[1].path, "b");
    EXPECT_EQ(sources[1].weight, 2);
    EXPECT_EQ(sources[2].weight, 1);
    EXPECT_EQ(sources[3].weight, 1);
    EXPECT_EQ(read.value("data.path"), config.value("data.path")) << "weight 1 is no weight";
  }
  for (const char* wrong :
       {"[{path = 'a', weight = 0}]", "[{path = 'a', weight = -1}]", "[{weight = 2}]", "[{path = 1}]",
        "[{path = 'a', wieght = 2}]", "[{path = 'a', weight = 'x'}]", "[{path = 'a', weight = inf}]"}) {
    const auto message =
        io::message_of<Error>([&] { make_config().read_toml(std::string("data.path = ") + wrong, "test"); });
    EXPECT_NE(message.find("data.path: expected a list of 1 to 1000 paths, or {path"), std::string::npos) << message;
  }
  EXPECT_EQ(train::data_sources(with({"data.path=x,y"})).size(), 2u);
}

TEST(TrainConfig, TakesSizesFromThePresetAndLetsKeysReplaceThem) {
  const auto plain = train::model_config(with({"model.preset=22m"}), 1000);
  EXPECT_EQ(plain.layers, 8);
  EXPECT_EQ(plain.vocab, 1000);
  const auto wider = train::model_config(with({"model.preset=22m", "model.width=1024", "train.context=64"}), 1000);
  EXPECT_EQ(wider.width, 1024);
  EXPECT_EQ(wider.head_dim, 128);
  EXPECT_EQ(wider.context, 64);
}

TEST(TrainConfig, ResolvedReadsBackToTheSameRun) {
  for (const auto& name : optimizer_names()) {
    auto config = with({"optimizer.name=" + name, "data.path=x", "run.out=y"});
    const auto model = train::model_config(config, 500);
    train::resolve(config, 500);
    auto again = make_config();
    again.read_toml(config.to_toml(), "written");
    EXPECT_EQ(again.to_toml(), config.to_toml());
    EXPECT_EQ(train::model_config(again, 500), model);
    EXPECT_EQ(train::optimizer_options(again).matrices->to_json(), train::optimizer_options(config).matrices->to_json())
        << name;
    EXPECT_FALSE(again.is("optimizer.lr", "auto"));
  }
}
