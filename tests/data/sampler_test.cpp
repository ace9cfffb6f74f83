#include "prism/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "prism/data/permutation.h"
#include "tests/data/helpers.h"

namespace prism::data {
namespace {

// A split whose token at position i is i.
class SamplerTest : public testing::Test {
 protected:
  Shards counting(int64_t tokens, int64_t shard_tokens = 1000) {
    std::vector<uint32_t> values(static_cast<size_t>(tokens));
    std::iota(values.begin(), values.end(), 0u);
    ShardWriter writer(folder_.path(), "train", 1 << 20, shard_tokens);
    writer.append(values);
    writer.commit({});
    return Shards(folder_.path(), "train", "");
  }

  static std::vector<int64_t> batch(const Sampler& sampler, int64_t step) {
    std::vector<int64_t> out(static_cast<size_t>(sampler.batch_tokens()));
    sampler.read(step, out);
    return out;
  }

  TemporaryFolder folder_;
};

TEST(Permutations, HitEveryPlaceOnce) {
  for (int64_t size = 1; size <= 300; ++size) {
    for (const uint64_t key : {0u, 1u, 12345u}) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i) {
        const int64_t image = permutation(i);
        ASSERT_TRUE(image >= 0 && image < size);
        ASSERT_FALSE(seen[static_cast<size_t>(image)]) << size << " " << key;
        seen[static_cast<size_t>(image)] = true;
      }
    }
  }
}

TEST(Permutations, HitEveryPlaceOnceWhenLarge) {
  const int64_t size = 1'000'003;
  const Permutation permutation(size, 99);
  std::vector<bool> seen(size);
  for (int64_t i = 0; i < size; ++i) seen[static_cast<size_t>(permutation(i))] = true;
  EXPECT_EQ(std::ranges::count(seen, true), size);
}

// Over many keys every place receives every index equally often: χ² of each row of counts stays near its mean n − 1.
TEST(Permutations, LookUniformOverKeys) {
  for (const int64_t size : {5, 16, 40}) {
    const int64_t keys = 20'000;
    std::vector<double> counts(static_cast<size_t>(size * size));
    for (int64_t key = 0; key < keys; ++key) {
      const Permutation permutation(size, mix(7, static_cast<uint64_t>(key)));
      for (int64_t i = 0; i < size; ++i) ++counts[static_cast<size_t>(i * size + permutation(i))];
    }
    const double expected = static_cast<double>(keys) / static_cast<double>(size);
    double chi = 0;
    for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
    const double freedom = static_cast<double>((size - 1) * (size - 1));
    EXPECT_LT(std::abs(chi - freedom), 5 * std::sqrt(2 * freedom)) << size;
  }
}

TEST(Permutations, LeaveNeighborsUncorrelated) {
  const int64_t size = 100'000;
  const Permutation permutation(size, 3);
  double sum = 0;
  for (int64_t i = 0; i + 1 < size; ++i) {
    const double a = static_cast<double>(permutation(i)) / size - 0.5,
                 b = static_cast<double>(permutation(i + 1)) / size - 0.5;
    sum += a * b;
  }
  EXPECT_LT(std::abs(sum / size * 12), 5 / std::sqrt(static_cast<double>(size)));
}

TEST(Permutations, RefuseImpossibleSizes) {
  EXPECT_TRUE(contains(message_of<Error>([] { Permutation(0, 1); }), "between 1 and 2^62, got 0"));
}

TEST_F(SamplerTest, AnEpochTrainsOnEachTargetOnce) {
  const int64_t tokens = 10'007, context = 16;
  const Shards shards = counting(tokens);
  const Sampler sampler(shards, {.batch = 1, .context = context, .seed = 5});
  ASSERT_EQ(sampler.windows(), tokens / context);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int64_t, int> targets;
    for (int64_t w = 0; w < sampler.windows(); ++w) {
      const auto row = batch(sampler, epoch * sampler.windows() + w);
      for (size_t i = 1; i < row.size(); ++i) {
        EXPECT_EQ(row[i], (row[i - 1] + 1) % tokens);
        ++targets[row[i]];
      }
    }
    EXPECT_EQ(std::ssize(targets), sampler.windows() * context);
  }
}

TEST_F(SamplerTest, AWeightIsHowOftenAnEpochGoesThroughAStretch) {
  const int64_t context = 8, sizes[] = {803, 2405, 400};
  const double weights[] = {2, 0.5, 1};
  const Shards shards = counting(803 + 2405 + 400);
  const Sampler sampler(shards,
                        {.batch = 1, .context = context, .seed = 9, .stretches = {{803, 2}, {2405, 0.5}, {400, 1}}});
  ASSERT_EQ(sampler.windows(), 2 * 100 + 150 + 50);
  std::vector<std::map<int64_t, int>> two_epochs(3);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> drawn(3);
    std::vector<std::map<int64_t, int>> seen(3);
    for (int64_t w = 0; w < sampler.windows(); ++w) {
      const auto row = batch(sampler, epoch * sampler.windows() + w);
      const size_t i = row[0] < 803 ? 0 : row[0] < 803 + 2405 ? 1 : 2;
      const int64_t first = i == 0 ? 0 : i == 1 ? 803 : 803 + 2405;
      ++drawn[i];
      for (size_t k = 1; k < row.size(); ++k) {
        EXPECT_EQ(row[k] - first, (row[k - 1] - first + 1) % sizes[i]) << "within one stretch, round its ring";
        ++seen[i][row[k]];
        ++two_epochs[i][row[k]];
      }
    }
    for (size_t i = 0; i < 3; ++i) {
      const int64_t windows = sizes[i] / context;
      EXPECT_EQ(drawn[i], std::llround(weights[i] * static_cast<double>(windows)));
    }
    EXPECT_EQ(std::ssize(seen[1]), 150 * context) << "half of the windows, each once";
    EXPECT_EQ(std::ssize(seen[2]), 50 * context);
  }
  EXPECT_EQ(std::ssize(two_epochs[1]), 300 * context) << "the other half in the next epoch";
  for (const auto& [token, times] : two_epochs[0]) EXPECT_LE(times, 4);
}

TEST_F(SamplerTest, WeightsKeepAStepAFunctionOfItsNumber) {
  const Shards shards = counting(5000);
  const SamplerOptions options{.batch = 7, .context = 33, .seed = 11, .stretches = {{1000, 3}, {4000, 0.7}}};
  const Sampler sampler(shards, options);
  std::set<std::string> hashes;
  for (int64_t step = 99; step >= 0; --step) {
    const auto whole = batch(sampler, step);
    hashes.insert(batch_hash(whole));
    std::vector<int64_t> half(static_cast<size_t>(3 * sampler.sequence_tokens()));
    Sampler(shards, options).read(step, half, 4);
    EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + 4 * sampler.sequence_tokens()));
  }
  EXPECT_EQ(hashes.size(), 100u);
}

TEST_F(SamplerTest, AStretchShorterThanASequenceIsRefused) {
  const Shards shards = counting(1000);
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         Sampler(shards, {.batch = 1, .context = 33, .stretches = {{970, 1}, {30, 2}}});
                       }),
                       "expected at least 34 tokens in weighted path 2 for a context of 33, got 30"));
}

TEST_F(SamplerTest, TheStepAloneGivesTheBatch) {
  const Shards shards = counting(5000);
  const SamplerOptions options{.batch = 7, .context = 33, .seed = 11};
  const Sampler sampler(shards, options);
  std::vector<std::string> forward;
  for (int64_t step = 0; step < 100; ++step) forward.push_back(batch_hash(batch(sampler, step)));
  for (int64_t step = 99; step >= 0; --step) {
    EXPECT_EQ(batch_hash(batch(Sampler(shards, options), step)), forward[static_cast<size_t>(step)]);
  }
  EXPECT_EQ(std::set<std::string>(forward.begin(), forward.end()).size(), 100u);
}

TEST_F(SamplerTest, TheOrderDoesNotDependOnTheBatch) {
  const Shards shards = counting(3000);
  const Sampler one(shards, {.batch = 1, .context = 10, .seed = 3}),
      six(shards, {.batch = 6, .context = 10, .seed = 3});
  for (int64_t step = 0; step < 120; ++step) {  // over two epochs of 300 windows
    const auto rows = batch(six, step);
    std::vector<int64_t> apart;
    for (int64_t k = 0; k < 6; ++k) {
      const auto row = batch(one, 6 * step + k);
      apart.insert(apart.end(), row.begin(), row.end());
    }
    EXPECT_EQ(rows, apart);
    std::vector<int64_t> halves(rows.size());
    six.read(step, std::span(halves).first(33), 0);
    six.read(step, std::span(halves).subspan(33), 3);
    EXPECT_EQ(halves, rows);
  }
}

TEST_F(SamplerTest, PrefetchingChangesNothing) {
  const Shards shards = counting(3000, 700);
  const Sampler sampler(shards, {.batch = 9, .context = 100, .seed = 4});
  for (int64_t step = 0; step < 20; ++step) {
    const auto before = batch(sampler, step);
    sampler.prefetch(step);
    EXPECT_EQ(batch(sampler, step), before);
  }
}

TEST_F(SamplerTest, EpochsDifferInOrderAndInTheirCuts) {
  const Shards shards = counting(1001);
  const Sampler sampler(shards, {.batch = 1, .context = 10, .seed = 1});
  std::set<int64_t> cuts;
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> starts;
    for (int64_t w = 0; w < 100; ++w) starts.push_back(sampler.start(epoch * 100 + w));
    cuts.insert(starts.front() % 10);
    EXPECT_EQ(std::ranges::find(orders, starts), orders.end());
    orders.push_back(starts);
  }
  EXPECT_GT(cuts.size(), 5u);
}

TEST_F(SamplerTest, SeedsGiveOtherOrders) {
  const Shards shards = counting(1000);
  EXPECT_NE(batch(Sampler(shards, {.batch = 4, .context = 10, .seed = 1}), 0),
            batch(Sampler(shards, {.batch = 4, .context = 10, .seed = 2}), 0));
}

// Data order is part of a run's identity: a change of this number breaks resuming.
TEST_F(SamplerTest, TheOrderIsTheOneOfEarlierVersions) {
  const Shards shards = counting(5000);
  const Sampler sampler(shards, {.batch = 4, .context = 32, .seed = 42});
  EXPECT_EQ(sampler.start(0), 1734);
  EXPECT_EQ(sampler.start(1'000'000), 2774);
  EXPECT_EQ(batch_hash(batch(sampler, 1'000'000)), "fbce3bbe10e3faa39f849d16e1fda48a");
}

TEST_F(SamplerTest, SmallSplitsWorkDownToOneWindow) {
  const Shards shards = counting(11);
  const Sampler sampler(shards, {.batch = 3, .context = 10, .seed = 0});
  EXPECT_EQ(sampler.windows(), 1);
  for (int64_t step = 0; step < 10; ++step) {
    const auto rows = batch(sampler, step);
    EXPECT_EQ(rows[10], (rows[0] + 10) % 11);
  }
  const Shards shorter = counting(10);
  EXPECT_TRUE(contains(message_of<Error>([&] { Sampler(shorter, {.batch = 1, .context = 10}); }),
                       "expected at least 11 tokens in the split \"train\" for a context of 10, got 10"));
  EXPECT_TRUE(contains(message_of<Error>([&] { EvalWindows(shorter, 10); }), "expected at least 11 tokens"));
}

TEST_F(SamplerTest, RefusesImpossibleRequests) {
  const Shards shards = counting(100);
  EXPECT_TRUE(
      contains(message_of<Error>([&] { Sampler(shards, {.batch = 0}); }), "batch of at least 1 sequence, got 0"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { Sampler(shards, {.context = 0}); }), "context of at least 1 token, got 0"));
  EXPECT_TRUE(contains(message_of<Error>([&] { EvalWindows(shards, 5, -1); }), "at least 0, got -1"));
  const Sampler sampler(shards, {.batch = 2, .context = 4});
  std::vector<int64_t> out(10);
  EXPECT_THROW(sampler.read(-1, out), std::out_of_range);
  EXPECT_THROW(sampler.read(0, out, 1), std::out_of_range);
  EXPECT_THROW(sampler.read(0, std::span(out).first(9)), std::out_of_range);
  EXPECT_THROW(EvalWindows(shards, 4).read(24, std::span(out).first(5)), std::out_of_range);
}

TEST_F(SamplerTest, HeldOutWindowsAreSideBySide) {
  const Shards shards = counting(1000);
  const EvalWindows windows(shards, 32);
  ASSERT_EQ(windows.count(), 31);
  std::vector<int64_t> row(33);
  for (int64_t i = 0; i < windows.count(); ++i) {
    windows.read(i, row);
    EXPECT_EQ(row.front(), 32 * i);
    EXPECT_EQ(row.back(), 32 * i + 32);
  }
  const EvalWindows few(shards, 32, 4);
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < few.count(); ++i) {
    few.read(i, row);
    starts.push_back(row.front() / 32);
  }
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 7, 15, 23}));
  EXPECT_EQ(EvalWindows(shards, 32, 500).count(), 31);
}

}  // namespace
}  // namespace prism::data
