#include "prism/data/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "prism/io/hash.h"
#include "tests/data/helpers.h"

namespace prism::data {
namespace {

class BuildTest : public testing::Test {
 protected:
  // Documents of very different lengths, so that batches and pieces end everywhere.
  std::string corpus_of(int documents, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < documents; ++i) {
      const size_t words = size_t{1} << (random() % 12);
      text += "document " + std::to_string(i) + "\n";
      for (size_t w = 0; w < words; ++w) text += std::to_string(random() % 1000) + (random() % 9 ? " " : "\n");
      text += "\n<|endoftext|>\n";
    }
    return write(folder_ / "corpus.txt", text);
  }

  TemporaryFolder folder_;
  const std::filesystem::path out_ = folder_ / "shards";
};

TEST_F(BuildTest, TheShardsHoldTheDocumentsInOrder) {
  const Corpus corpus({corpus_of(300)});
  const BuildResult result = build(corpus, byte_encoder(), out_, {});
  const Strings documents = documents_of(corpus);
  EXPECT_EQ(decoded(tokens_of(out_, "train")), documents);
  EXPECT_EQ(result.train.documents, 300);
  EXPECT_EQ(result.train.tokens, static_cast<int64_t>(result.train.text_bytes) + 300);
  EXPECT_FALSE(result.val);
  EXPECT_FALSE(has_shards(out_, "val"));
  EXPECT_EQ(read_identity(out_, "train"), result.train);
  ASSERT_EQ(result.train.sources.size(), 1u);
  EXPECT_EQ(result.train.sources[0].path, corpus.roots()[0].path);
  EXPECT_EQ(result.train.sources[0].bytes, corpus.bytes());
  EXPECT_EQ(result.train.sources[0].hash, io::hash_bytes(contents(corpus.roots()[0].path)));
}

TEST_F(BuildTest, TheResultDoesNotDependOnWorkersOrTheirPace) {
  const Corpus corpus({corpus_of(400)});
  std::atomic<unsigned> calls{0};
  Encoder uneven = byte_encoder();
  uneven.encode = [&, encode = uneven.encode](std::string_view text, std::vector<uint32_t>& tokens) {
    if (calls++ % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    encode(text, tokens);
  };
  BuildOptions options;
  options.held_out.fraction = 0.1;
  options.shard_tokens = 100'000;
  build(corpus, byte_encoder(), out_, options);
  for (const int workers : {1, 2, 5}) {
    options.workers = workers;
    const auto other = folder_ / ("workers" + std::to_string(workers));
    build(corpus, uneven, other, options);
    for (const auto& entry : std::filesystem::directory_iterator(out_)) {
      EXPECT_EQ(contents(entry.path()), contents(other / entry.path().filename())) << entry.path();
    }
  }
}

TEST_F(BuildTest, HeldOutDocumentsAreWholeAndInNoTrainingShard) {
  const Corpus corpus({corpus_of(500)});
  BuildOptions options;
  options.held_out.documents = 40;
  const BuildResult result = build(corpus, byte_encoder(), out_, options);
  ASSERT_TRUE(result.val);
  EXPECT_EQ(result.val->documents, 40);
  EXPECT_EQ(result.train.documents, 460);
  const Strings all = documents_of(corpus), train = decoded(tokens_of(out_, "train")),
                val = decoded(tokens_of(out_, "val"));
  const std::set<std::string> expected(all.begin(), all.end());
  std::set<std::string> got(train.begin(), train.end());
  for (const std::string& document : val) EXPECT_TRUE(got.insert(document).second) << "in both splits";
  EXPECT_EQ(got, expected);
}

TEST_F(BuildTest, LongDocumentsStayOnOneSide) {
  Strings documents;
  std::string text;
  for (int i = 0; i < 8; ++i) {
    documents.push_back("book " + std::to_string(i) + "\n");
    while (documents.back().size() < 600'000) documents.back() += "line of book " + std::to_string(i) + "\n";
    text += documents.back() + "<|endoftext|>\n";
  }
  ReaderOptions reader;
  reader.piece_bytes = 150'000;
  const Corpus corpus({write(folder_ / "a.txt", text)}, reader);
  BuildOptions options;
  options.held_out.documents = 3;
  build(corpus, byte_encoder(), out_, options);
  const Strings val = decoded(tokens_of(out_, "val"));
  ASSERT_EQ(val.size(), 3u);
  for (const std::string& document : val) EXPECT_TRUE(std::ranges::count(documents, document) == 1);
}

TEST_F(BuildTest, ProgressRunsThroughTheStagesToTheEnd) {
  const Corpus corpus({corpus_of(100)});
  std::vector<Progress> reports;
  const BuildResult result =
      build(corpus, byte_encoder(), out_, {}, [&](const Progress& progress) { reports.push_back(progress); });
  for (const Stage stage : {Stage::Hash, Stage::Scan, Stage::Encode}) {
    const auto last = std::ranges::find(reports.rbegin(), reports.rend(), stage, &Progress::stage);
    ASSERT_NE(last, reports.rend());
    EXPECT_EQ(last->bytes, last->total_bytes);
    EXPECT_EQ(last->eta_s, 0);
    EXPECT_GT(last->mb_per_s, 0);
  }
  EXPECT_EQ(reports.back().documents, 100);
  EXPECT_EQ(reports.back().tokens, result.train.tokens);
  EXPECT_EQ(reports.back().total_bytes, result.train.text_bytes);
  EXPECT_TRUE(std::ranges::is_sorted(reports, {}, &Progress::stage));
}

TEST_F(BuildTest, AFailureLeavesNothingBehind) {
  struct Canceled {};
  const Corpus corpus({corpus_of(200)});
  const auto deep = folder_ / "made" / "by" / "build";
  const auto cancel = [](const Progress& progress) {
    if (progress.stage == Stage::Encode) throw Canceled();
  };
  EXPECT_THROW(build(corpus, byte_encoder(), deep, {}, cancel), Canceled);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "made"));

  Encoder failing = byte_encoder();
  failing.encode = [](std::string_view, std::vector<uint32_t>&) { throw std::runtime_error("encoder broke"); };
  EXPECT_EQ(message_of<std::runtime_error>([&] { build(corpus, failing, deep, {}); }), "encoder broke");
  failing.encode = [](std::string_view, std::vector<uint32_t>& tokens) { tokens.push_back(257); };
  EXPECT_TRUE(
      contains(message_of<Error>([&] { build(corpus, failing, deep, {}); }), "below the vocabulary size 257, got 257"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "made"));

  build(corpus, byte_encoder(), out_, {});
  const auto before = tokens_of(out_, "train");
  EXPECT_THROW(build(corpus, byte_encoder(), out_, {}, cancel), Canceled);
  EXPECT_EQ(tokens_of(out_, "train"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out_), {}), 2);
}

TEST_F(BuildTest, MalformedInputIsRefusedBeforeAnythingIsWritten) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"text\": \"fine\"}\n";
  const Corpus corpus({write(folder_ / "a.jsonl", lines + "{}\n")});
  EXPECT_TRUE(contains(message_of<Error>([&] { build(corpus, byte_encoder(), out_, {}); }), "a.jsonl line 1001: "));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(BuildTest, ACorpusThatChangesMeanwhileIsRefused) {
  const std::string path = corpus_of(20);
  const Corpus corpus({path});
  const auto append = [&](const Progress& progress) {
    if (progress.stage == Stage::Scan) std::ofstream(path, std::ios::app) << "one more\n";
  };
  EXPECT_TRUE(contains(message_of<Error>([&] { build(corpus, byte_encoder(), out_, {}, append); }),
                       "the corpus changed while it was read: expected 20 documents"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(BuildTest, ARebuildReplacesBothSplits) {
  const Corpus corpus({corpus_of(100)});
  BuildOptions options;
  options.held_out.documents = 5;
  const BuildResult first = build(corpus, byte_encoder(), out_, options);
  const BuildResult second = build(corpus, byte_encoder(), out_, {});
  EXPECT_FALSE(has_shards(out_, "val"));
  EXPECT_EQ(second.train.documents, 100);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out_), {}), 2);
  EXPECT_NE(first.train.recipe, second.train.recipe);
}

TEST_F(BuildTest, AHeldOutTextOfItsOwnBecomesTheOtherSplit) {
  const Corpus corpus({corpus_of(100)});
  BuildOptions options;
  options.held_out_text.emplace(std::vector{write(folder_ / "held-out.txt", "one\n<|endoftext|>\ntwo\n")});
  const BuildResult result = build(corpus, byte_encoder(), out_, options);
  EXPECT_EQ(decoded(tokens_of(out_, "train")), documents_of(corpus));
  EXPECT_EQ(decoded(tokens_of(out_, "val")), documents_of(*options.held_out_text));
  ASSERT_TRUE(result.val);
  EXPECT_EQ(result.val->documents, 2);
  auto train = hash_sources(corpus), held_out = hash_sources(*options.held_out_text);
  train[0].tokens = result.train.tokens;
  held_out[0].tokens = result.val->tokens;
  EXPECT_EQ(result.train.sources, train);
  EXPECT_EQ(result.val->sources, held_out);
  EXPECT_EQ(result.train.recipe, result.val->recipe);
  EXPECT_EQ(result.train.recipe, recipe(corpus, hash_sources(corpus, options), byte_encoder(), options));

  write(folder_ / "held-out.txt", "three\n");
  BuildOptions changed;
  changed.held_out_text.emplace(std::vector{(folder_ / "held-out.txt").string()});
  EXPECT_NE(result.train.recipe, recipe(corpus, hash_sources(corpus, changed), byte_encoder(), changed));
}

TEST_F(BuildTest, TheEndOfASingleDocumentIsHeldOutFromALineOn) {
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) text += fmt::format("line {} of a text without separators\n", i);
  BuildOptions options;
  options.held_out.fraction = 0.1;
  for (const size_t piece_bytes : {size_t{1} << 20, size_t{1000}}) {
    ReaderOptions reader;
    reader.piece_bytes = piece_bytes;
    const Corpus corpus({write(folder_ / "one.txt", text)}, reader);
    const BuildResult result = build(corpus, byte_encoder(), out_, options);
    const auto train = decoded(tokens_of(out_, "train")), val = decoded(tokens_of(out_, "val"));
    ASSERT_EQ(train.size(), 1u);
    ASSERT_EQ(val.size(), 1u);
    EXPECT_EQ(train[0] + val[0], text);
    EXPECT_TRUE(train[0].ends_with('\n') && val[0].starts_with("line "));
    EXPECT_NEAR(static_cast<double>(val[0].size()), 0.1 * static_cast<double>(text.size()), 50);
    EXPECT_EQ(result.cut_bytes, val[0].size());
  }
  for (const std::string& short_text :
       {std::string("no line end at all, and an é"), std::string("ab"), std::string(5000, 'x') + "\n"}) {
    const Corpus corpus({write(folder_ / "short.txt", short_text)});
    build(corpus, byte_encoder(), out_, options);
    EXPECT_EQ(decoded(tokens_of(out_, "train"))[0] + decoded(tokens_of(out_, "val"))[0], short_text);
  }
  options.held_out = {.fraction = 0, .documents = 1};
  const Corpus corpus({(folder_ / "one.txt").string()});
  EXPECT_TRUE(contains(message_of<Error>([&] { build(corpus, byte_encoder(), out_, options); }), "left to train on"));
}

TEST_F(BuildTest, CountsWhatItLeavesOutAndReplaces) {
  write(folder_ / "text/a.jsonl", "{\"text\": \"one\"}\n{\"text\": null}\n{\"text\": \"  \"}\n{\"text\": null}\n");
  write(folder_ / "text/b.txt", "caf\xE9 and \xEF\xBF\xBD stay \xFF\xFE");
  write(folder_ / "text/.hidden", "x");
  const BuildResult result = build(Corpus({(folder_ / "text").string()}), byte_encoder(), out_, {});
  EXPECT_EQ(result.train.documents, 2);
  EXPECT_EQ(result.null_rows, 2);
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_EQ(result.broken_characters, 3) << "a U+FFFD that was there is none";
  EXPECT_EQ(result.skipped.hidden, 1);
}

TEST_F(BuildTest, EverySourceKnowsItsTokens) {
  const auto first = corpus_of(60, 1);
  std::filesystem::rename(first, folder_ / "first.txt");
  const Corpus both({(folder_ / "first.txt").string(), corpus_of(90, 2)}), one({(folder_ / "first.txt").string()});
  BuildOptions options;
  options.held_out.fraction = 0.2;
  options.shard_tokens = 5000;
  const BuildResult result = build(both, byte_encoder(), out_, options);
  for (const auto& identity : {result.train, *result.val}) {
    EXPECT_EQ(identity.sources[0].tokens + identity.sources[1].tokens, identity.tokens);
  }
  const int64_t tokens = result.train.sources[0].tokens + result.val->sources[0].tokens;
  EXPECT_EQ(tokens, build(one, byte_encoder(), folder_ / "one", {}).train.tokens);
}

TEST_F(BuildTest, TheRecipeTellsWhetherABuildIsNeeded) {
  const Corpus corpus({corpus_of(20)});
  const auto sources = hash_sources(corpus);
  const BuildOptions options;
  const BuildResult result = build(corpus, byte_encoder(), out_, options);
  EXPECT_EQ(result.train.recipe, recipe(corpus, {sources, {}}, byte_encoder(), options));

  Encoder other = byte_encoder();
  other.hash = "other";
  EXPECT_NE(result.train.recipe, recipe(corpus, {sources, {}}, other, options));
  ReaderOptions reader;
  reader.separator = "";
  EXPECT_NE(result.train.recipe,
            recipe(Corpus({corpus.roots()[0].path}, reader), {sources, {}}, byte_encoder(), options));
  std::filesystem::rename(corpus.roots()[0].path, folder_ / "moved.txt");
  const Corpus moved({(folder_ / "moved.txt").string()});
  EXPECT_EQ(result.train.recipe, recipe(moved, {hash_sources(moved), {}}, byte_encoder(), options));
  write(folder_ / "moved.txt", "changed");
  const Corpus changed({(folder_ / "moved.txt").string()});
  EXPECT_NE(result.train.recipe, recipe(changed, {hash_sources(changed), {}}, byte_encoder(), options));
}

TEST_F(BuildTest, FoldersHashByNamesAndContents) {
  const auto hash = [&](const std::string& name) { return hash_sources(Corpus({(folder_ / name).string()}))[0].hash; };
  write(folder_ / "a/x/1.py", "one");
  write(folder_ / "a/2.py", "two");
  write(folder_ / "b/x/1.py", "one");
  write(folder_ / "b/2.py", "two");
  EXPECT_EQ(hash("a"), hash("b"));
  std::filesystem::rename(folder_ / "b/2.py", folder_ / "b/3.py");
  EXPECT_NE(hash("a"), hash("b"));
}

TEST_F(BuildTest, ImpossibleRequestsAreRefused) {
  const Corpus corpus({corpus_of(2)});
  const auto refused = [&](const Encoder& encoder, const BuildOptions& options) {
    return message_of<Error>([&] { build(corpus, encoder, out_, options); });
  };
  Encoder encoder = byte_encoder();
  encoder.end_of_text = 257;
  EXPECT_TRUE(contains(refused(encoder, {}), "end-of-text token below the vocabulary size 257, got 257"));
  BuildOptions options;
  options.workers = 0;
  EXPECT_TRUE(contains(refused(byte_encoder(), options), "at least 1 worker, got 0"));
  options = {};
  options.shard_tokens = 0;
  EXPECT_TRUE(contains(refused(byte_encoder(), options), "tokens in a shard, got 0"));
  options = {};
  options.held_out.documents = 2;
  EXPECT_TRUE(contains(refused(byte_encoder(), options), "left to train on"));
  options = {};
  options.held_out.fraction = 0.5;
  options.held_out_text = corpus;
  EXPECT_TRUE(contains(refused(byte_encoder(), options), "a held-out text or a held-out part of the corpus, got both"));
  write(out_, "a file");
  EXPECT_TRUE(contains(refused(byte_encoder(), {}), "shards: cannot make the folder"));
}

TEST_F(BuildTest, TwoBuildsIntoOneFolderDoNotMix) {
  const Corpus corpus({corpus_of(50)});
  std::string message;
  build(corpus, byte_encoder(), out_, {}, [&](const Progress& progress) {
    if (progress.stage != Stage::Encode || !message.empty()) return;
    message = message_of<Error>([&] { build(corpus, byte_encoder(), out_, {}); });
  });
  EXPECT_TRUE(contains(message, "another process is writing to this folder"));
  EXPECT_EQ(decoded(tokens_of(out_, "train")), documents_of(corpus));
}

}  // namespace
}  // namespace prism::data
