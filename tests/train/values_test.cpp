// Checks that every documented value of every key works and that no value is accepted and ignored.

#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "prism/io/error.h"
#include "prism/optim/registry.h"
#include "prism/train/run.h"
#include "prism/train/run_folder.h"
#include "tests/train/helpers.h"

using namespace prism;
using nlohmann::json;

namespace {

using Settings = std::vector<std::string>;

// Returns the other settings that a key needs to have an effect, or that make its smallest value possible.
Settings context_of(const std::string& key) {
  static const std::map<std::string, Settings> contexts = {
      {"model.width", {"model.heads=1", "model.kv_heads=1", "model.head_dim=2"}},
      {"model.heads", {"model.kv_heads=1"}},
      {"train.steps", {"schedule.warmup=0"}},
      {"schedule.decay", {"schedule.kind=wsd"}},
      {"optimizer.gamma_floor", {"optimizer.gamma_schedule=cosine"}},
      {"optimizer.root_every", {"optimizer.side=whitened"}},
      {"optimizer.rank", {"optimizer.covariance=sketch"}},
  };
  const auto found = contexts.find(key);
  auto settings = found == contexts.end() ? Settings{} : found->second;
  if (!key.starts_with("optimizer.") || key == "optimizer.name") return settings;
  for (const auto& name : optimizer_names()) {  // the first that has the option
    const auto options = make_options(name);
    for (const auto& option : options->table()) {
      if ("optimizer." + option.name == key) return settings.push_back("optimizer.name=" + name), settings;
    }
  }
  return settings;
}

// Returns the words, truth values and ends of the range that the documentation names; for an open end a value inside.
std::vector<json> documented_values(const io::ConfigKey& key) {
  const auto text = key.expected();
  std::vector<json> values;
  if (text.starts_with("true or false")) values = {true, false};
  const std::regex words("\"([^\"]*)\""), bounds("(≥|>|≤|<) (\\S+?)(?=[ ,]|$)");
  const std::sregex_iterator none;
  for (std::sregex_iterator word(text.begin(), text.end(), words); word != none; ++word) values.push_back((*word)[1]);
  const bool list = text.starts_with("a list of");
  for (std::sregex_iterator bound(text.begin(), text.end(), bounds); bound != none; ++bound) {
    const double end = std::stod((*bound)[2]), inside = (*bound)[1] == ">" ? 0.1 : (*bound)[1] == "<" ? -0.1 : 0;
    const json value = text.find("integer") == std::string::npos ? json(end + inside) : json(std::llround(end));
    values.push_back(list ? json::array({value, value}) : value);
  }
  return values;
}

bool is_walked(const std::string& key) {
  static const std::set<std::string> fixed = {"run.out", "data.path", "data.cache", "data.tokenizer"};
  return !key.starts_with("compare.") && !fixed.contains(key);
}

class Values : public testing::Test {
 protected:
  // Trains three steps with these settings. Returns "" and the resolved configuration, or the message of the failure.
  std::string outcome(const Settings& settings, io::Config* resolved = nullptr) {
    const auto folder = small_.folder.path() / ("run" + std::to_string(count_++));
    Settings all = {"train.steps=3", "schedule.warmup=1", "train.eval_every=0"};
    all.insert(all.end(), settings.begin(), settings.end());
    try {
      auto config = small_.config(all);
      config.assign("run.out", folder.string(), "test");
      const bool own_data =
          std::any_of(settings.begin(), settings.end(), [](const auto& s) { return s.starts_with("data."); });
      const auto dataset = train::open_dataset(config, own_data ? folder / "data" : small_.folder.path() / "data");
      const auto result = train::run(config, dataset, {});
      if (result.status != train::RunStatus::Finished) return result.diagnosis;
      if (resolved != nullptr) *resolved = *train::RunFolder{folder}.config();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  SmallRun small_;
  int count_ = 0;
};

}  // namespace

TEST_F(Values, ThatAreDocumentedWork) {
  size_t tried = 0;
  for (const auto& key : train::config_table().keys()) {
    if (!is_walked(key.name())) continue;
    for (const auto& value : documented_values(key)) {
      auto settings = context_of(key.name());
      const auto text = key.name() + "=" + value.dump();
      settings.push_back(text);
      auto written = train::make_config();
      const auto message = outcome(settings, &written);
      if (value == 1e30 && message.find("not finite") != std::string::npos) continue;  // a rate that must diverge
      EXPECT_EQ(message, "") << text;
      EXPECT_TRUE(value == "auto" || written.value(key.name()) == value) << text;
      ++tried;
    }
  }
  EXPECT_GT(tried, 100U);
}

TEST_F(Values, OfASettledConfigurationMakeTheSameRunAgain) {
  for (const auto& name : optimizer_names()) {
    auto written = train::make_config();
    ASSERT_EQ(outcome({"optimizer.name=" + name}, &written), "");
    auto again = train::make_config();
    again.read_toml(written.to_toml(), "written");
    EXPECT_NO_THROW(train::check(again)) << name;
  }
}

TEST_F(Values, ThatWouldBeIgnoredAreRefusedByKey) {
  const std::pair<Settings, const char*> cases[] = {
      {{"optimizer.rank=8"}, "rank is for covariance 'sketch' and 'subspace', got covariance 'ema'"},
      {{"optimizer.covariance=instant", "optimizer.covariance_beta=0.5"},
       "covariance_beta is for averaged covariances, got covariance 'instant'"},
      {{"optimizer.side=inputs", "optimizer.root_every=2"},
       "root_every is for side 'whitened' with covariance 'ema', got side 'inputs' and covariance 'ema'"},
      {{"optimizer.name=shampoo", "optimizer.state_dtype=bfloat16"}, "state_dtype 'bfloat16' is for momenta"},
      {{"optimizer.name=ssd", "optimizer.state_dtype=bfloat16"}, "state_dtype 'bfloat16' is for momenta"},
      {{"optimizer.gamma_floor=0.5"}, "--set optimizer.gamma_floor=0.5: optimizer.gamma_floor: needs"},
      {{"optimizer.name=muon", "optimizer.gamma_warmup=2"},
       "--set optimizer.gamma_warmup=2: optimizer.gamma_warmup: muon has no γ"},
      {{"schedule.kind=constant", "schedule.floor=0.5"},
       "--set schedule.floor=0.5: schedule.floor: schedule.kind = \"constant\" has no floor"},
      {{"schedule.decay=1"}, "needs schedule.kind = \"wsd\", got"},
      {{"schedule.warmup=3"}, "--set schedule.warmup=3: schedule.warmup: expected fewer than train.steps = 3, got 3"},
      {{"schedule.kind=wsd", "schedule.decay=3"},
       "schedule.decay: expected at most train.steps − schedule.warmup = 2, got 3"},
      {{"optimizer.gamma_schedule=linear", "optimizer.gamma_warmup=4"},
       "optimizer.gamma_warmup: expected fewer than train.steps = 3"},
  };
  for (const auto& [settings, expected] : cases) {
    const auto message = outcome(settings);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST_F(Values, ThatContradictAnImportedModelAreRefusedByKey) {
  ASSERT_EQ(outcome({}), "");
  const auto init = "model.init=" + (small_.folder.path() / "run0/checkpoints/step-00000003").string();
  const auto refusal = [&](const std::string& setting) {
    auto config = train::make_config();
    for (const auto& one : {init, setting}) config.set(one);
    return io::message_of<Error>([&] { train::model_config(config, 280); });
  };
  EXPECT_NE(refusal("model.tied=false").find("model.tied: model.init has true, got false"), std::string::npos);
  EXPECT_NE(refusal("model.preset=demo").find("model.preset: model.init has its own sizes"), std::string::npos);
  EXPECT_NE(refusal("model.width=64").find("model.width: model.init has 32, got 64"), std::string::npos);
  EXPECT_NE(refusal("model.rope_theta=7").find("model.rope_theta: model.init has 1000000"), std::string::npos);
  EXPECT_NE(refusal("model.init_scale=depth").find("model.init_scale: model.init has its own weights"),
            std::string::npos);
  auto config = train::make_config();
  for (const auto& one : {init, std::string("model.tied=true"), std::string("data.path=x"), std::string("run.out=y")})
    config.set(one);
  train::resolve(config, 280);
  auto again = train::make_config();
  again.read_toml(config.to_toml(), "written");
  EXPECT_EQ(train::model_config(again, 280), train::model_config(config, 280)) << "what is written reads back";
}
