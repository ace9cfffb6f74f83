#include "prism/reproduce/experiment.h"

#include <gtest/gtest.h>

#include <set>

#include "prism/io/error.h"
#include "prism/train/config.h"
#include "tests/io/temporary_folder.h"
#include "tests/reproduce/helpers.h"

namespace prism::reproduce {
namespace {

template <typename Action>
std::string message(Action&& action) {
  return io::message_of<Error>(action);
}

TEST(Experiments, EveryOneCanBePlannedAtEveryScaleItNames) {
  for (const auto& scale : scale_names()) {
    std::set<std::string> titles;
    for (const auto& experiment : experiments("all", {}, scale)) {
      EXPECT_TRUE(titles.insert(experiment.title).second) << scale << ": the title of two: " << experiment.title;
      EXPECT_GE(experiment.plan.total_runs(), experiment.plan.sweep().size()) << experiment.name;
      EXPECT_GT(experiment.plan.sweep().size(), 0U) << experiment.name;
    }
    EXPECT_FALSE(titles.empty()) << scale;
  }
}

// Section 4.1 of the paper.
TEST(Experiments, ThePaperScaleHasThePapersSettings) {
  const auto table = experiments("table1", {}, "paper");
  ASSERT_EQ(table.size(), 1);
  const auto settings_of = [&](const std::string& id) {
    for (const auto& planned : table[0].plan.sweep()) {
      if (table[0].plan.contenders()[planned.contender].id == id) return key_settings(planned.config);
    }
    return nlohmann::json();
  };
  const auto prism = settings_of("prism-1");
  const nlohmann::json expected = {{"train.batch", 128},
                                   {"train.context", 2048},
                                   {"train.steps", 10000},
                                   {"train.clip", 10.0},
                                   {"schedule.kind", "cosine"},
                                   {"schedule.warmup", 2000},
                                   {"schedule.floor", 0.1},
                                   {"optimizer.name", "prism"},
                                   {"optimizer.lr", 0.02},
                                   {"optimizer.gamma", 1.0},
                                   {"optimizer.momentum", 0.95},
                                   {"optimizer.nesterov", true},
                                   {"optimizer.side", "right"},
                                   {"optimizer.covariance", "instant"},
                                   {"optimizer.scale", "moonlight"},
                                   {"optimizer.weight_decay", 0.01},
                                   {"optimizer.aux_weight_decay", 0.01},
                                   {"optimizer.aux_betas", {0.9, 0.95}},
                                   {"optimizer.solver", "gram"},
                                   {"optimizer.coefficients", "jordan"},
                                   {"model.layers", 8},
                                   {"model.width", 512},
                                   {"model.heads", 8},
                                   {"model.kv_heads", 2},
                                   {"model.mlp", 1408},
                                   {"model.tied", true}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(prism.value(key, nlohmann::json()), value) << key;
  EXPECT_EQ(prism.at("optimizer.aux_lr"), 0.02);  // both groups share the schedule
  const auto muon = settings_of("muon");
  EXPECT_EQ(muon.at("optimizer.lr"), 0.02);
  const auto adamw = settings_of("adamw");
  EXPECT_EQ(adamw.at("optimizer.lr"), 0.005);
  EXPECT_EQ(adamw.at("optimizer.aux_lr"), 0.005);
  EXPECT_EQ(adamw.at("optimizer.weight_decay"), 0.01);
}

TEST(Experiments, TheSmallScaleIsThePapersBatchForOneEpochOf123MTokens) {
  for (const auto& experiment : experiments("table1", {}, "small")) {
    const auto& config = experiment.plan.config();
    EXPECT_EQ(config.integer("train.batch"), 128);
    EXPECT_EQ(config.integer("train.context"), 2048);
    EXPECT_EQ(config.integer("train.steps"), 460);
    EXPECT_LT(config.integer("train.steps") * 128 * 2048, 123'000'000);
  }
}

TEST(Experiments, EveryNumberOfThePaperHasAMeasureBesideIt) {
  for (const char* name :
       {"table1", "table2", "figure-loss", "figure-lr", "figure-norm", "figure-tikhonov", "figure-gain"}) {
    for (const auto& experiment : experiments(name, {}, "sweep")) {
      ASSERT_NE(experiment.paper_measure, nullptr);
      for (const auto& contender : experiment.plan.contenders())
        EXPECT_EQ(contender.config.strings("experiment.paper").size(), contender.rates.size())
            << name << ' ' << contender.id;
    }
  }
}

TEST(Experiments, UnknownNamesAndScalesAreRefusedWithTheNearest) {
  EXPECT_NE(message([] { experiments("tabel1"); }).find("did you mean \"table1\"?"), std::string::npos);
  EXPECT_NE(message([] { experiments("table1", {}, "swep"); }).find("did you mean \"sweep\"?"), std::string::npos);
}

TEST(Experiments, SeveralNamesComeInTheirOrderAndEachOnce) {
  std::vector<std::string> names;
  const Choices choices{.scale = "smoke", .data = {"text.txt"}, .held_out = {}, .tokenizer = "", .settings = {}};
  for (const auto& experiment : make_experiments({"table2", "covariance", "table1", "covariance/beta"}, choices))
    names.push_back(experiment.name);
  EXPECT_EQ(names, (std::vector<std::string>{"table2", "covariance/right", "covariance/natural", "covariance/gamma",
                                             "covariance/beta", "covariance/every", "covariance/rank", "table1"}));
  EXPECT_NE(message([&] {
              make_experiments({"table1", "tabel2"}, choices);
            }).find("did you mean \"table2\"?"),
            std::string::npos);
}

TEST(Experiments, SettingsOfTheUserComeLast) {
  const auto table = experiments("table1", {"train.steps=7"});
  EXPECT_EQ(table[0].plan.config().integer("train.steps"), 7);
}

}  // namespace
}  // namespace prism::reproduce
