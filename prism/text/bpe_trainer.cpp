#include "prism/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "prism/io/error.h"
#include "prism/text/byte_level.h"
#include "prism/text/merge_learner.h"
#include "prism/text/unicode.h"
#include "prism/text/utf8.h"
#include "prism/text/word_counts.h"

namespace prism::text {

namespace {

// A batch is counted completely before words are dropped, so that the choice does not depend on threads.
constexpr size_t kBatchBytes = size_t{32} << 20;

struct Batch {
  std::vector<std::string> pieces;
  size_t bytes = 0;
};

bool fill(Batch& batch, const TextSource& source) {
  batch = {};
  for (std::string piece; batch.bytes < kBatchBytes; batch.pieces.push_back(std::move(piece))) {
    piece.clear();
    if (!source(piece)) return false;
    batch.bytes += piece.size();
  }
  return true;
}

// Counts the words of batches on several threads.
class WordCounter {
 public:
  explicit WordCounter(const TrainerOptions& options)
      : options_(options),
        partial_(options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency())) {}

  // Counts `batch` and runs `work` on this thread at the same time.
  void count(const Batch& batch, const std::function<void()>& work) {
    std::atomic<size_t> next = 0;
    std::vector<std::exception_ptr> errors(partial_.size());
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < partial_.size(); ++i) {
        threads.emplace_back([&, i] {
          try {
            for (size_t piece; (piece = next++) < batch.pieces.size();) count_piece(batch.pieces[piece], partial_[i]);
          } catch (...) {
            errors[i] = std::current_exception();
          }
        });
      }
      work();
    }
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    for (WordCounts& partial : partial_) {
      total_.add(partial);
      partial.clear();
    }
    if (total_.bytes() > options_.word_memory) dropped_ += total_.prune(options_.word_memory / 2);
  }

  const WordCounts& total() const { return total_; }
  int64_t dropped() const { return dropped_; }

 private:
  void count_piece(std::string_view piece, WordCounts& counts) const {
    std::string repaired, normalized;
    piece = repair_utf8(piece, repaired);
    if (options_.normalizer == Normalizer::Nfc) piece = nfc(piece, normalized);
    WordScanner scanner(options_.pre_split, piece);
    for (std::string_view word; scanner.next(word);) counts.add(word);
  }

  const TrainerOptions& options_;
  std::vector<WordCounts> partial_;
  WordCounts total_;
  int64_t dropped_ = 0;
};

void check(const TrainerOptions& options) {
  const auto least = static_cast<int64_t>(256 + options.special_tokens.size());
  if (options.vocabulary < least) {
    throw Error(
        fmt::format("tokenizer: a vocabulary of {} tokens is too small; the 256 bytes and {} special tokens need {}",
                    options.vocabulary, options.special_tokens.size(), least));
  }
  if (options.threads < 0) throw Error(fmt::format("tokenizer: threads must be 0 or more, got {}", options.threads));
}

TokenizerParts make_parts(const MergeLearner& learner, const TrainerOptions& options) {
  TokenizerParts parts;
  parts.normalizer = options.normalizer;
  parts.pre_split = options.pre_split;
  std::vector<std::string> tokens;
  for (const std::string& bytes : learner.tokens()) tokens.push_back(bytes_to_characters(bytes));
  for (const auto& [left, right] : learner.merges()) parts.merges.emplace_back(tokens[left], tokens[right]);
  auto next = static_cast<TokenId>(tokens.size());
  for (const std::string& special : options.special_tokens) {
    const auto known = std::find(tokens.begin(), tokens.end(), special);
    parts.added_tokens.push_back(
        {.content = special, .id = known == tokens.end() ? next++ : static_cast<TokenId>(known - tokens.begin())});
  }
  for (TokenId id = 0; id < tokens.size(); ++id) parts.vocabulary.emplace_back(std::move(tokens[id]), id);
  return parts;
}

}  // namespace

TrainerResult train_bpe(const TextSource& source, const TrainerOptions& options) {
  check(options);
  TrainerProgress progress{.tokens = 256, .vocabulary = options.vocabulary};
  const auto report = [&] {
    if (options.progress) options.progress(progress);
  };

  WordCounter counter(options);
  Batch batch, following;
  bool more = fill(batch, source);
  while (!batch.pieces.empty()) {
    counter.count(batch, [&] { more = more && fill(following, source); });
    progress.bytes += batch.bytes;
    progress.distinct_words = static_cast<int64_t>(counter.total().size());
    report();
    batch = std::exchange(following, {});
  }

  const size_t wanted = static_cast<size_t>(options.vocabulary) - options.special_tokens.size();
  MergeLearner learner(counter.total());
  progress.phase = TrainerProgress::Phase::Merging;
  learner.learn(wanted, options.least_count, [&] {
    progress.tokens = static_cast<int64_t>(learner.tokens().size());
    if (progress.tokens % 256 == 0) report();
  });
  if (learner.tokens().size() < wanted && !options.allow_fewer) {
    throw Error(
        fmt::format("tokenizer: the text has only {} pairs that occur {} times, which gives {} tokens of {}; give more "
                    "text or ask for fewer",
                    learner.merges().size(), options.least_count,
                    learner.tokens().size() + options.special_tokens.size(), options.vocabulary));
  }
  return {Tokenizer(make_parts(learner, options)), progress.bytes, progress.distinct_words, counter.dropped()};
}

}  // namespace prism::text
