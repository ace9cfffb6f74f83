#include "prism/train/dataset.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "prism/io/error.h"
#include "tests/train/helpers.h"

using namespace prism;
namespace fs = std::filesystem;

namespace {

struct Counted {
  int trained = 0, built = 0;
  train::DatasetProgress progress{[this](const auto&) { ++trained; }, [this](const auto&) { ++built; }, {}};
};

}  // namespace

TEST(Dataset, IsMadeOnceAndTakenAgainWhileTextAndSettingsStay) {
  const SmallRun small;
  const auto folder = small.folder.path() / "data";
  Counted first, second, third, fourth;
  const auto made = train::open_dataset(small.config(), folder, first.progress);
  EXPECT_GT(first.trained, 0);
  EXPECT_GT(first.built, 0);
  EXPECT_EQ(made.tokenizer.size(), 280);
  EXPECT_GT(made.val.tokens(), 0);

  train::open_dataset(small.config(), folder, second.progress);
  EXPECT_EQ(second.trained + second.built, 0);

  train::open_dataset(small.config({"data.held_out=0.3"}), folder, third.progress);
  EXPECT_EQ(third.trained, 0);
  EXPECT_GT(third.built, 0);

  io::write_file_atomically(small.folder.path() / "text/0.txt", "another text altogether");
  train::open_dataset(small.config(), folder, fourth.progress);
  EXPECT_GT(fourth.trained, 0);
  EXPECT_GT(fourth.built, 0);
}

TEST(Dataset, OfShardsNeedsTheTokenizerTheyWereMadeWith) {
  const SmallRun small;
  const auto folder = small.folder.path() / "data";
  train::open_dataset(small.config(), folder);
  const auto shards = small.config({"data.vocab=280", "data.path=" + folder.string()});
  EXPECT_EQ(train::open_dataset(shards, small.folder.path() / "unused").tokenizer.size(), 280);
  EXPECT_FALSE(fs::exists(small.folder.path() / "unused"));

  const SmallRun other;
  train::open_dataset(other.config({"data.vocab=270"}), other.folder.path() / "data");
  auto foreign = small.config({"data.vocab=270", "data.path=" + folder.string(),
                               "data.tokenizer=" + (other.folder.path() / "data/tokenizer.json").string()});
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { train::open_dataset(foreign, small.folder.path() / "unused"); }),
                           "train.json: made with the tokenizer "));
}

TEST(Dataset, BuildsDamagedShardsAgainWhereItHasTheTextAndElseRefusesThem) {
  const SmallRun small;
  const auto folder = small.folder.path() / "data";
  const auto recipe = train::open_dataset(small.config(), folder).train.identity().recipe;
  const auto shard = folder / "train_000000.bin";
  const auto good = io::read_file(shard);
  auto bad = good;
  bad[good.size() / 2] ^= 1;
  io::write_file_atomically(shard, bad);
  const auto shards = small.config({"data.path=" + folder.string()});
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { train::open_dataset(shards, small.folder.path() / "unused"); }),
                           "train_000000.bin: expected tokens with XXH3 "));

  const train::TrainedData trained{recipe, folder / "tokenizer.json"};
  fs::rename(small.folder.path() / "text", small.folder.path() / "gone");
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { train::open_dataset(small.config(), folder, {}, trained); }),
                           "the file is damaged; the text it was built from is missing"));
  fs::rename(small.folder.path() / "gone", small.folder.path() / "text");
  std::string note;
  train::open_dataset(small.config(), folder, {{}, {}, [&](const std::string& text) { note += text; }}, trained);
  EXPECT_TRUE(io::contains(note, "the file is damaged; building the shards again"));
  EXPECT_EQ(io::read_file(shard), good);
}

TEST(Dataset, OfSeveralFoldersOfShardsIsOneAfterTheOther) {
  const SmallRun small;
  const auto &root = small.folder.path(), first = root / "first", second = root / "second";
  const auto a = train::open_dataset(small.config(), first);
  const auto tokenizer = "data.tokenizer=" + (first / "tokenizer.json").string();
  const auto b = train::open_dataset(small.config({tokenizer, "data.held_out=0.4"}), second);
  const auto paths = "data.path=" + first.string() + "," + second.string();
  const auto both = train::open_dataset(small.config({paths}), root / "unused");

  const auto tokens = [](const data::Shards& shards) {
    std::vector<int64_t> all(static_cast<size_t>(shards.tokens()));
    shards.read(0, all);
    return all;
  };
  for (const auto split : {&train::Dataset::train, &train::Dataset::val}) {
    auto expected = tokens(a.*split);
    const auto rest = tokens(b.*split);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(tokens(both.*split), expected);
    (both.*split).verify();
  }
  EXPECT_EQ(both.train.identity().documents, a.train.identity().documents + b.train.identity().documents);
  const auto swapped = "data.path=" + second.string() + "," + first.string();
  EXPECT_NE(both.train.identity().recipe,
            train::open_dataset(small.config({swapped, tokenizer}), root / "unused").train.identity().recipe);
  EXPECT_FALSE(fs::exists(root / "unused"));

  const auto mixed = "data.path=" + first.string() + "," + (root / "text").string();
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { train::open_dataset(small.config({mixed}), root / "unused"); }),
                           "data.path: expected folders of token shards or text, got both"));
}

TEST(Dataset, KnowsTheStretchesOfWeightedPathsOfTextAndOfShards) {
  const SmallRun small;
  const auto& root = small.folder.path();
  const auto file = [&](int i) { return (root / "text" / fmt::format("{}.txt", i)).string(); };
  EXPECT_TRUE(small.dataset().stretches.empty());
  const auto weighted =
      fmt::format("data.path=[\"{}\", {{path = \"{}\", weight = 2}}, \"{}\"]", file(0), file(1), file(2));
  const auto text = train::open_dataset(small.config({weighted}), root / "text-data");
  ASSERT_EQ(text.stretches.size(), 3u);
  EXPECT_EQ(text.stretches[1].weight, 2);
  int64_t sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    sum += text.stretches[i].tokens;
    EXPECT_EQ(text.stretches[i].tokens, text.train.identity().sources[i].tokens);
  }
  EXPECT_EQ(sum, text.train.tokens());

  const auto shards =
      fmt::format("data.path=[\"{0}\", {{path = \"{0}\", weight = 0.25}}]", (root / "text-data").string());
  const auto twice = train::open_dataset(small.config({shards}), root / "unused");
  ASSERT_EQ(twice.stretches.size(), 2u);
  EXPECT_EQ(twice.stretches[0].tokens, text.train.tokens());
  EXPECT_EQ(twice.stretches[1].tokens, text.train.tokens());
  EXPECT_EQ(twice.stretches[1].weight, 0.25);
}

TEST(Dataset, RefusesAVocabularyThatIsNotTheTokenizers) {
  const SmallRun small;
  const auto folder = small.folder.path() / "data";
  train::open_dataset(small.config(), folder);
  const auto other = small.config({"data.vocab=300", "data.tokenizer=" + (folder / "tokenizer.json").string()});
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { train::open_dataset(other, folder); }),
                           "--set data.vocab=300: data.vocab: "));
}

TEST(Dataset, FindsTheSourcesOfTorch) {
  EXPECT_TRUE(fs::exists(train::torch_folder() / "nn" / "modules" / "linear.py"));
}
