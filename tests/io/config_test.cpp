#include "prism/io/config.h"

#include "prism/io/atomic_file.h"
#include "prism/io/config_toml.h"
#include "prism/io/error.h"
#include "prism/io/spelling.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

using nlohmann::json;

ConfigTable table() {
  return {{
              ConfigKey::string("data.path", nullptr, "File or folder to train on."),
              ConfigKey::integer("train.steps", 1000, "Optimizer steps.").at_least(1),
              ConfigKey::integer("train.width", 64, "Width.")
                  .must("a multiple of 8", [](const json& v) { return v.get<int64_t>() % 8 == 0; }),
              ConfigKey::boolean("train.deterministic", false, "Same bits | each time."),
              ConfigKey::real("train.clip", 10, "Largest gradient norm.").above(0).or_word("off"),
              ConfigKey::string("optimizer.side", "auto", "Side of the Gram matrix.").one_of({"auto", "left", "right"}),
              ConfigKey::real("optimizer.lr", 0.02, "Peak learning rate.").above(0),
              ConfigKey::reals("optimizer.aux_betas", {0.9, 0.95}, "Averages of AdamW.").length(2).at_least(0).below(1),
              ConfigKey::real_lists("optimizer.coefficients", "jordan", "Polynomial of each step.")
                  .or_word("jordan")
                  .or_word("you"),
              ConfigKey::strings("compare.optimizers", {"prism", "muon"}, "What to compare.").length(1, 12),
              ConfigKey::integers("compare.seeds", {0}, "Seeds."),
          },
          "compare.override"};
}

Config config_of(std::string_view text) {
  Config config(table());
  config.read_toml(text, "demo.toml");
  return config;
}

std::string refusal_of(std::string_view text) {
  return message_of<Error>([&] { config_of(text); });
}

std::string refusal_of_set(std::string_view assignment) {
  return message_of<Error>([&] { Config(table()).set(assignment); });
}

TEST(Config, StartsFromTheDefaults) {
  const Config config(table());
  EXPECT_EQ(config.integer("train.steps"), 1000);
  EXPECT_EQ(config.real("train.clip"), 10.0);
  EXPECT_FALSE(config.boolean("train.deterministic"));
  EXPECT_EQ(config.string("optimizer.side"), "auto");
  EXPECT_EQ(config.reals("optimizer.aux_betas"), (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(config.strings("compare.optimizers"), (std::vector<std::string>{"prism", "muon"}));
  EXPECT_EQ(config.integers("compare.seeds"), std::vector<int64_t>{0});
  EXPECT_FALSE(config.is_given("train.steps"));
  EXPECT_EQ(config.where("train.steps"), "train.steps (default)");
}

TEST(Config, ReadsTomlInEverySpelling) {
  const auto config = config_of(R"(
data.path = "text"
"train.width" = 16
[train]
steps = 40
clip = "off"
[optimizer]
lr = 1
coefficients = [[1, 2.5, 3], [4, 5, 6]]
aux_betas = [0, 0.5])");
  EXPECT_EQ(config.integer("train.steps"), 40);
  EXPECT_EQ(config.integer("train.width"), 16);
  EXPECT_EQ(config.string("data.path"), "text");
  EXPECT_TRUE(config.is("train.clip", "off"));
  EXPECT_TRUE(config.value("optimizer.lr").is_number_float());
  EXPECT_EQ(config.value("optimizer.coefficients"), json::parse("[[1.0,2.5,3.0],[4.0,5.0,6.0]]"));
  EXPECT_EQ(config.reals("optimizer.aux_betas"), (std::vector<double>{0, 0.5}));
  EXPECT_TRUE(config.is_given("train.steps"));
  EXPECT_EQ(config.where("train.steps"), "demo.toml:5: train.steps");
}

TEST(Config, TakesAWholeNumberInAnySpellingAsAnInteger) {
  EXPECT_EQ(config_of("train.steps = 8.0").value("train.steps"), json(8));
  Config config(table());
  config.set("train.steps=1e3");
  EXPECT_TRUE(config.value("train.steps").is_number_integer());
  EXPECT_EQ(config.integer("train.steps"), 1000);
  for (const char* refused : {"train.steps=8.5", "train.steps=1e300", "train.steps=0.0", "train.steps=-1e3"}) {
    EXPECT_TRUE(contains(message_of<Error>([&] { config.set(refused); }), "expected an integer")) << refused;
  }
}

TEST(Config, ReadsLettersBeyondAsciiInEveryKindOfString) {
  for (const char* text :
       {"data.path = 'é' # é", "data.path = \"\\\\é\"", "data.path = '''\né'''", "data.path = \"\"\"\né\"\"\"",
        "\xEF\xBB\xBF# é ' \" \ndata.path = \"\"\"\"\"é\"\"\"\"\"", "data.path = \"\\\"é\""}) {
    EXPECT_TRUE(contains(config_of(text).string("data.path"), "é")) << text;
  }
  Config config(table());
  config.set("data.path=été");
  EXPECT_EQ(config.string("data.path"), "été");
}

TEST(Config, ReadsAFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "demo.toml", "[train]\nsteps = 7\n");
  Config config(table());
  config.read_file(folder / "demo.toml");
  EXPECT_EQ(config.integer("train.steps"), 7);
  EXPECT_TRUE(contains(message_of<Error>([&] { config.read_file(folder / "none.toml"); }), "none.toml: cannot open"));
  EXPECT_TRUE(contains(message_of<Error>([&] { config.read_file(folder.path()); }), "got a folder"));
}

TEST(Config, SetTakesTomlWordsAndListsWithoutBrackets) {
  Config config(table());
  for (const char* assignment :
       {"train.steps=5", "train.deterministic=true", "data.path=2024-01-01/22m #1.txt", "optimizer.side=\"left\"",
        "train.clip=off", "compare.optimizers=adamw, \"muon\",prism", "compare.seeds=1,2,3", "optimizer.lr=1e-3",
        "optimizer.coefficients=[[1,2,3]]"}) {
    config.set(assignment);
  }
  EXPECT_EQ(config.integer("train.steps"), 5);
  EXPECT_TRUE(config.boolean("train.deterministic"));
  EXPECT_EQ(config.string("data.path"), "2024-01-01/22m #1.txt");
  EXPECT_EQ(config.string("optimizer.side"), "left");
  EXPECT_TRUE(config.is("train.clip", "off"));
  EXPECT_EQ(config.strings("compare.optimizers"), (std::vector<std::string>{"adamw", "muon", "prism"}));
  EXPECT_EQ(config.integers("compare.seeds"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(config.real("optimizer.lr"), 1e-3);
  EXPECT_EQ(config.value("optimizer.coefficients"), json::parse("[[1.0,2.0,3.0]]"));
  for (const char* assignment :
       {"compare.optimizers=[soap]", "compare.seeds=[4]", "optimizer.coefficients=you", "data.path=7"}) {
    config.set(assignment);
  }
  EXPECT_EQ(config.strings("compare.optimizers"), std::vector<std::string>{"soap"});
  EXPECT_EQ(config.integers("compare.seeds"), std::vector<int64_t>{4});
  EXPECT_TRUE(config.is("optimizer.coefficients", "you"));
  EXPECT_EQ(config.string("data.path"), "7");
  EXPECT_EQ(config.where("data.path"), "--set data.path=7: data.path");
  config.set("compare.optimizers=prism");
  EXPECT_EQ(config.strings("compare.optimizers"), std::vector<std::string>{"prism"});
}

struct Refusal {
  const char* name;
  std::string text;
  const char* message;
};

class RefusedToml : public ::testing::TestWithParam<Refusal> {};
class RefusedSet : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedToml, HasAMessage) { EXPECT_TRUE(contains(refusal_of(GetParam().text), GetParam().message)); }
TEST_P(RefusedSet, HasAMessage) { EXPECT_TRUE(contains(refusal_of_set(GetParam().text), GetParam().message)); }

INSTANTIATE_TEST_SUITE_P(
    EveryMistake, RefusedToml,
    ::testing::ValuesIn(std::vector<Refusal>{
        {"UnknownKey", "[train]\nsteps = 1\nstpes = 2",
         "demo.toml:3: unknown key \"train.stpes\"; the nearest known key is \"train.steps\""},
        {"KeyOfAnotherSection", "[train]\nlr = 1",
         "demo.toml:2: unknown key \"train.lr\"; the nearest known key is \"optimizer.lr\""},
        {"UnknownSectionWithKeys", "[trian]\nsteps = 2",
         "demo.toml:2: unknown key \"trian.steps\"; the nearest known key is \"train.steps\""},
        {"UnknownEmptySection", "\n[trian]", "demo.toml:2: unknown section \"trian\"; the nearest known key is"},
        {"KeyWithoutSection", "steps = 2",
         "demo.toml:1: unknown key \"steps\"; the nearest known key is \"train.steps\""},
        {"WordForInteger", "train.steps = 'ten'", "demo.toml:1: train.steps: expected an integer ≥ 1, got \"ten\""},
        {"RealForInteger", "train.steps = 10.5", "expected an integer ≥ 1, got 10.5"},
        {"BooleanForReal", "optimizer.lr = true", "optimizer.lr: expected a real number > 0, got true"},
        {"NumberForBoolean", "train.deterministic = 1", "train.deterministic: expected true or false, got 1"},
        {"NumberForString", "data.path = 1", "data.path: expected a string, got 1"},
        {"NumberForList", "compare.seeds = 1", "compare.seeds: expected a list of integers, got 1"},
        {"RealInIntegers", "compare.seeds = [1, 2.5]", "compare.seeds: expected a list of integers, got [1,2.5]"},
        {"DateForString", "data.path = 2024-01-01", "data.path: expected a string, got a table, date or time"},
        {"TableForKey", "[train.steps]",
         "demo.toml:1: train.steps: expected an integer ≥ 1, got a table, date or time"},
        {"TableInList", "compare.seeds = [{a = 1}]", "compare.seeds: expected a list of integers, got [{\"a\":1}]"},
        {"ListOfSections", "[[train]]\nsteps = 1",
         "demo.toml:1: \"train\" is a section; expected a key in it, such as"},
        {"ValueForSection", "train = 1", "demo.toml:1: \"train\" is a section; expected a key in it, such as"},
        {"BelowTheRange", "train.steps = 0", "train.steps: expected an integer ≥ 1, got 0"},
        {"OnTheOpenBound", "optimizer.lr = 0", "expected a real number > 0, got 0"},
        {"NotFinite", "optimizer.lr = inf", "expected a real number > 0, got inf"},
        {"NotANumber", "optimizer.lr = nan", "expected a real number > 0, got nan"},
        {"ElementOutOfRange", "optimizer.aux_betas = [0.5, 1]",
         "expected a list of 2 real numbers ≥ 0 and < 1, got [0.5,1]"},
        {"WrongLength", "optimizer.aux_betas = [0.5]", "expected a list of 2 real numbers ≥ 0 and < 1, got [0.5]"},
        {"EmptyList", "compare.optimizers = []", "expected a list of 1 to 12 strings, got []"},
        {"NotAChoice", "optimizer.side = 'up'", "expected one of \"auto\", \"left\", \"right\", got \"up\""},
        {"NotTheWord", "train.clip = 'on'", "expected a real number > 0, or \"off\", got \"on\""},
        {"NotAMultiple", "train.width = 12", "expected an integer, a multiple of 8, got 12"},
        {"Twice", "[train]\nsteps = 1\nsteps = 2", "demo.toml:3: invalid TOML"},
        {"TwiceInTwoSpellings", "'train.steps' = 1\n[train]\nsteps = 2",
         "demo.toml:3: train.steps was already given in line 1"},
        {"SectionTwice", "[train]\nsteps = 1\n[train]\nwidth = 8", "demo.toml:3: invalid TOML"},
        {"Syntax", "[train]\nsteps 1", "demo.toml:2: invalid TOML"},
        {"BareWord", "optimizer.side = left", "demo.toml:1: invalid TOML"},
        {"BrokenUtf8", "# \xff\xfe", "demo.toml:1: invalid TOML"},
        {"LetterBeyondAscii", "# é\nétapes = 1", "demo.toml:2: invalid TOML: a non-ASCII character is outside quotes"},
        {"LetterAfterAQuoteOfQuotes", "data.path = \"\"\"a\\\"\"\"\"\" é",
         "demo.toml:1: invalid TOML: a non-ASCII character"},
        {"LetterAfterAContinuedLine", "data.path = \"\"\"\\\n§\"\"\"",
         "demo.toml:2: invalid TOML: a non-ASCII character"},
        {"LetterInQuotesAfterABareWord", "a = 1b\"\"\"\"§\"\"\"", "demo.toml:1: invalid TOML"},
        {"HeaderWithoutAName", "[ =]", "demo.toml: invalid TOML"},
        {"Binary",
         std::string("\x7f"
                     "ELF\0\0\1",
                     7),
         "demo.toml:1: invalid TOML"},
        {"TooLong", std::string(2000000, '\n'),
         "demo.toml: expected at most 1048576 bytes, got 2000000; is this a configuration file?"},
        {"TooDeep",
         "a" +
             [] {
               std::string dots;
               for (int i = 0; i < 100000; ++i) dots += ".a";
               return dots;
             }() +
             " = 1",
         "demo.toml:1: more than 1000 dots in one line"},
        {"OverrideOfUnknownKey", "[compare.override.adamw]\n'optimizer.rl' = 1",
         "demo.toml:2: unknown key \"compare.override.adamw.optimizer.rl\"; the nearest known key is \"optimizer.lr\""},
        {"OverrideOfWrongType", "[compare.override.adamw]\n'optimizer.lr' = 'x'",
         "demo.toml:2: compare.override.adamw.optimizer.lr: expected a real number > 0, got \"x\""},
        {"OverrideWithoutKey", "[compare.override]\nadamw = 1",
         "demo.toml:2: \"compare.override.adamw\": expected compare.override.NAME.section.key"},
        {"OverrideOfAnOverride", "[compare.override.a.compare.override.b.optimizer]\nlr = 1",
         "unknown key \"compare.override.a.compare.override.b.optimizer.lr\""},
    }),
    [](const auto& refusal) { return refusal.param.name; });

INSTANTIATE_TEST_SUITE_P(
    EveryMistake, RefusedSet,
    ::testing::ValuesIn(std::vector<Refusal>{
        {"NoEquals", "train.steps", "--set train.steps: expected section.key=value"},
        {"UnknownKey", "train.step=1",
         "--set train.step=1: unknown key \"train.step\"; the nearest known key is \"train.steps\""},
        {"NoKey", "=1", "--set =1: unknown key \"\""},
        {"WrongType", "train.steps=ten", "--set train.steps=ten: train.steps: expected an integer ≥ 1, got \"ten\""},
        {"Empty", "train.steps=", "expected an integer ≥ 1, got \"\""},
        {"TwoValues", "train.steps=1\nvalue2=3", "expected an integer ≥ 1, got \"1\\nvalue2=3\""},
        {"NotAChoice", "optimizer.side=up", "expected one of \"auto\", \"left\", \"right\", got \"up\""},
        {"ListElement", "compare.seeds=1,b", "compare.seeds: expected a list of integers, got \"1,b\""},
        {"Section", "train=1", "\"train\" is a section"},
        {"BrokenUtf8", "data.path=\xff", "expected valid UTF-8"},
        {"Override", "compare.override.adamw.optimizer.lr=-1",
         "compare.override.adamw.optimizer.lr: expected a real number > 0, got -1"},
    }),
    [](const auto& refusal) { return refusal.param.name; });

TEST(Config, TakesNothingFromAFileWithAMistake) {
  Config config(table());
  EXPECT_THROW(config.read_toml("[train]\nsteps = 5\nwidth = 'x'", "demo.toml"), Error);
  EXPECT_EQ(config.integer("train.steps"), 1000);
}

TEST(Config, AsksForAValueThatHasNoDefault) {
  const Config config(table());
  EXPECT_FALSE(config.has("data.path"));
  EXPECT_EQ(message_of<Error>([&] { config.string("data.path"); }),
            "data.path: expected a string, got nothing; give it in the configuration file or with --set data.path=…");
}

TEST(Config, ReadingByAWrongNameOrTypeIsAMistakeOfTheProgram) {
  const Config config(table());
  EXPECT_THROW(config.integer("train.stpes"), std::logic_error);
  EXPECT_THROW(config.integer("optimizer.lr"), std::logic_error);
  EXPECT_THROW(config.string("train.steps"), std::logic_error);
  EXPECT_THROW(config.boolean("train.steps"), std::logic_error);
  EXPECT_THROW(config.integers("train.steps"), std::logic_error);
  EXPECT_THROW(config.integers("optimizer.aux_betas"), std::logic_error);
  EXPECT_EQ(config.real("train.steps"), 1000.0);
}

TEST(Config, PrintsItselfSoThatItReadsBackTheSame) {
  auto config = config_of(R"(
[train]
steps = 3
[data]
path = "quote\" tab\t del\u007F é 名 \\ \u0001"
[optimizer]
lr = 1e-30
[compare.override.adamw]
"optimizer.lr" = 0.005
[compare.override."odd name"]
optimizer.side = "left")");
  const auto text = config.to_toml();
  const auto again = config_of(text);
  EXPECT_EQ(again.to_toml(), text);
  for (const auto& key : config.table().keys()) EXPECT_EQ(again.value(key.name()), config.value(key.name()));
  EXPECT_EQ(again.override_names(), config.override_names());
}

TEST(Config, PrintsDefaultsAndWhatIsMissing) {
  const Config config(ConfigTable({ConfigKey::string("data.path", nullptr, ""), ConfigKey::real("a.b", 1, "")}));
  EXPECT_EQ(config.to_toml(), "[data]\n# path is not given\n\n[a]\nb = 1.0\n");
}

TEST(Config, GivesASectionInTheOrderOfTheTable) {
  const auto config = config_of("optimizer.lr = 0.5");
  EXPECT_EQ(config.section("optimizer").dump(),
            R"({"side":"auto","lr":0.5,"aux_betas":[0.9,0.95],"coefficients":"jordan"})");
  EXPECT_TRUE(config.section("data").empty());
}

TEST(Config, OverridesOneNameAtATime) {
  auto config = config_of(R"(
optimizer.lr = 0.02
[compare.override.adamw]
"optimizer.lr" = 0.005
train.clip = "off"
[compare.override.muon.optimizer]
lr = 0.01)");
  config.set("compare.override.soap.train.steps=9");
  EXPECT_EQ(config.override_names(), (std::vector<std::string>{"adamw", "muon", "soap"}));
  EXPECT_EQ(config.overridden("adamw").real("optimizer.lr"), 0.005);
  EXPECT_TRUE(config.overridden("adamw").is("train.clip", "off"));
  EXPECT_EQ(config.overridden("adamw").where("optimizer.lr"), "demo.toml:4: optimizer.lr");
  EXPECT_EQ(config.overridden("muon").real("optimizer.lr"), 0.01);
  EXPECT_EQ(config.overridden("soap").integer("train.steps"), 9);
  EXPECT_EQ(config.overridden("prism").to_toml(), config.to_toml());
  EXPECT_EQ(config.real("optimizer.lr"), 0.02);
}

TEST(Config, AssignChecksLikeTheUser) {
  Config config(table());
  config.assign("optimizer.lr", 1, "sweep");
  EXPECT_EQ(config.real("optimizer.lr"), 1.0);
  EXPECT_EQ(message_of<Error>([&] { config.assign("optimizer.lr", -1, "sweep"); }),
            "sweep: optimizer.lr: expected a real number > 0, got -1");
}

TEST(ConfigTable, DocumentsItself) {
  const auto text = table().markdown();
  EXPECT_TRUE(contains(text,
                       "## `train`\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
                       "| `train.steps` | an integer ≥ 1 | `1000` | Optimizer steps. |\n"));
  EXPECT_TRUE(contains(text, "| `data.path` | a string | none | File or folder to train on. |"));
  EXPECT_TRUE(contains(text, "Same bits \\| each time."));
  EXPECT_TRUE(contains(text, "| `train.clip` | a real number > 0, or \"off\" | `10.0` |"));
  EXPECT_TRUE(contains(
      text,
      "| `optimizer.coefficients` | a list of lists of real numbers, or \"jordan\", or \"you\" | `\"jordan\"` |"));
}

TEST(ConfigTable, RefusesItsOwnMistakes) {
  const auto broken = [](std::vector<ConfigKey> keys) {
    return message_of<std::logic_error>([&] { ConfigTable table(std::move(keys)); });
  };
  EXPECT_EQ(broken({ConfigKey::integer("steps", 1, "")}), "steps: expected section.key");
  EXPECT_EQ(broken({ConfigKey::integer("a.b", 1, ""), ConfigKey::real("a.b", 1, "")}), "a.b: declared twice");
  EXPECT_EQ(broken({ConfigKey::integer("a.b", 0, "").at_least(1)}), "a.b: the default 0 is not an integer ≥ 1");
  EXPECT_EQ(message_of<std::logic_error>([] { ConfigKey::integer("a.b", 0, "").one_of({"x"}); }),
            "a.b: one_of is for strings");
}

TEST(ConfigTable, FindsTheNearestKey) {
  const auto keys = table();
  EXPECT_EQ(keys.nearest("train.setps"), "train.steps");
  EXPECT_EQ(keys.nearest("optimiser.lr"), "optimizer.lr");
  EXPECT_EQ(keys.nearest("lr"), "optimizer.lr");
  EXPECT_EQ(keys.nearest("compare.seed"), "compare.seeds");
  const ConfigTable swapped({ConfigKey::integer("t.abdcxy", 1, ""), ConfigKey::integer("t.abcd", 1, "")});
  EXPECT_EQ(swapped.nearest("t.abdc"), "t.abcd");  // two neighbors swapped are one mistake
  for (const auto& far : {std::string(), std::string(1000000, 'x')}) {
    EXPECT_NE(keys.find(keys.nearest(far)), nullptr) << "some key is named whatever was given";
  }
}

TEST(NearestWord, IsNamedOnlyWhenItIsNear) {
  const std::vector<std::string> known = {"train", "tokenizer", "data", "doctor"};
  EXPECT_EQ(nearest_word("tokeniser", known), "tokenizer");
  EXPECT_EQ(nearest_word("trian", known), "train");
  EXPECT_EQ(nearest_word("zzzz", known), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

}  // namespace
}  // namespace prism::io
