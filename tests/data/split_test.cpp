#include "prism/data/split.h"

#include <algorithm>
#include <random>

#include "tests/data/helpers.h"

namespace prism::data {
namespace {

std::vector<uint64_t> random_hashes(size_t count) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> hashes(count);
  for (uint64_t& hash : hashes) hash = random();
  return hashes;
}

std::optional<uint64_t> bound(HeldOut held_out, const std::vector<uint64_t>& hashes) {
  HeldOutChooser chooser(held_out);
  for (const uint64_t hash : hashes) chooser.add(hash);
  return chooser.bound();
}

int64_t chosen(HeldOut held_out, const std::vector<uint64_t>& hashes) {
  const auto limit = bound(held_out, hashes);
  return std::ranges::count_if(hashes, [&](uint64_t hash) { return limit && hash <= *limit; });
}

TEST(HeldOutDocuments, AreAsManyAsAskedFor) {
  const auto hashes = random_hashes(1000);
  for (const int64_t n : {1, 2, 10, 999}) EXPECT_EQ(chosen({.documents = n}, hashes), n);
  EXPECT_EQ(chosen({}, hashes), 0);
}

TEST(HeldOutDocuments, AreTheFractionAskedForButAtLeastOneAndNotAll) {
  const auto hashes = random_hashes(10'000);
  EXPECT_NEAR(static_cast<double>(chosen({.fraction = 0.1}, hashes)), 1000, 100);
  EXPECT_EQ(chosen({.fraction = 1e-12}, hashes), 1);
  EXPECT_EQ(chosen({.fraction = 0.01}, {UINT64_MAX - 1, UINT64_MAX}), 1);
  EXPECT_EQ(chosen({.fraction = 0.01}, {5, 7, 6, 7}), 2) << "all are below the fraction's bound";
}

TEST(HeldOutDocuments, DoNotDependOnTheOrder) {
  auto hashes = random_hashes(500);
  const auto by_number = bound({.documents = 20}, hashes), by_fraction = bound({.fraction = 0.001}, hashes);
  std::ranges::reverse(hashes);
  EXPECT_EQ(bound({.documents = 20}, hashes), by_number);
  EXPECT_EQ(bound({.fraction = 0.001}, hashes), by_fraction);
}

TEST(HeldOutDocuments, MustLeaveSomethingToTrainOn) {
  const auto refused = [](HeldOut held_out, const std::vector<uint64_t>& hashes) {
    return message_of<Error>([&] { bound(held_out, hashes); });
  };
  EXPECT_TRUE(contains(refused({.fraction = 0.01}, {7}), "left to train on after the held-out ones, got none of 1;"));
  EXPECT_TRUE(contains(refused({.documents = 1}, {7, 7}), "got 2 copies of one, and copies stay together;"));
  EXPECT_TRUE(contains(refused({.documents = 3}, {1, 2, 3}), "got none of 3;"));
  EXPECT_TRUE(contains(refused({.documents = 9}, {1, 2, 3}), "got none of 3;"));
  EXPECT_TRUE(contains(refused({.fraction = 1}, {}), "at least 0 and below 1, got 1"));
  EXPECT_TRUE(contains(refused({.fraction = -0.5}, {}), "got -0.5"));
  EXPECT_TRUE(contains(refused({.fraction = std::nan("")}, {}), "got nan"));
  EXPECT_TRUE(contains(refused({.documents = -1}, {}), "at least 0, got -1"));
  EXPECT_TRUE(contains(refused({.fraction = 0.1, .documents = 1}, {}), "got both"));
}

TEST(HeldOutDocuments, CannotBeChosenAmongCopiesOfOne) {
  HeldOutChooser chooser({.fraction = 0.01});
  for (int i = 0; i < 1000; ++i) chooser.add(document_hash("the same"));
  EXPECT_EQ(io::message_of<Error>([&] { chooser.bound(); }),
            "data: expected documents that differ in their first 64 KiB, got 1000 copies of one, and copies stay "
            "together; remove the copies, or hold out none and name a separate held-out text");
}

TEST(DocumentHashes, SeeTheFirst64KiB) {
  const std::string text(size_t{64} << 10, 'x');
  EXPECT_EQ(document_hash(text), document_hash(text + "more"));
  EXPECT_NE(document_hash(text), document_hash(text.substr(1)));
}

}  // namespace
}  // namespace prism::data
