#include "prism/data/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "prism/data/ordered_workers.h"
#include "prism/io/error.h"
#include "prism/io/folder_lock.h"
#include "prism/io/hash.h"
#include "prism/text/utf8.h"

namespace prism::data {

namespace {

constexpr size_t kBatchBytes = size_t{512} << 10;
constexpr size_t kBatchesUnderWay = 8;

// Calls back regularly, with the speed since the stage began.
class Meter {
 public:
  Meter(Stage stage, uint64_t total_bytes, const std::function<void(const Progress&)>& report)
      : report_(report), begin_(Clock::now()) {
    now_.stage = stage;
    now_.total_bytes = total_bytes;
  }

  void advance(uint64_t bytes, int64_t documents = 0, int64_t tokens = 0) {
    now_.bytes = bytes;
    now_.documents = documents;
    now_.tokens = tokens;
    if (Clock::now() - last_ >= std::chrono::milliseconds(100)) call();
  }
  void finish() {
    now_.bytes = now_.total_bytes;
    call();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void call() {
    if (!report_) return;
    last_ = Clock::now();
    const double seconds = std::chrono::duration<double>(last_ - begin_).count();
    const double rate = seconds > 0 ? static_cast<double>(now_.bytes) / seconds : 0;
    const uint64_t left = now_.total_bytes > now_.bytes ? now_.total_bytes - now_.bytes : 0;
    now_.mb_per_s = rate / 1e6;
    now_.eta_s = rate > 0 ? static_cast<double>(left) / rate : 0;
    report_(now_);
  }

  const std::function<void(const Progress&)>& report_;
  Clock::time_point begin_;
  Clock::time_point last_{};
  Progress now_;
};

constexpr size_t kTrain = 0;
constexpr size_t kVal = 1;

// All documents: those of the corpus, then those of the held-out text.
class AllDocuments {
 public:
  AllDocuments(const Corpus& corpus, const BuildOptions& options) : corpus_(corpus) {
    if (options.held_out_text) held_out_.emplace(*options.held_out_text);
  }

  bool next(Piece& piece) {
    if (!in_held_out_text_ && corpus_.next(piece)) return true;
    in_held_out_text_ = held_out_.has_value();
    return held_out_ && held_out_->next(piece);
  }

  bool in_held_out_text() const { return in_held_out_text_; }  // the last piece
  size_t root() const { return in_held_out_text_ ? held_out_->root() : corpus_.root(); }
  uint64_t consumed() const { return corpus_.consumed() + (held_out_ ? held_out_->consumed() : 0); }
  int64_t documents() const { return corpus_.documents() + (held_out_ ? held_out_->documents() : 0); }
  int64_t empty_documents() const { return corpus_.empty_documents() + (held_out_ ? held_out_->empty_documents() : 0); }
  int64_t null_rows() const { return corpus_.null_rows() + (held_out_ ? held_out_->null_rows() : 0); }

 private:
  Documents corpus_;
  std::optional<Documents> held_out_;
  bool in_held_out_text_ = false;
};

uint64_t bytes_of(const Corpus& corpus, const BuildOptions& options) {  // on disk
  return corpus.bytes() + (options.held_out_text ? options.held_out_text->bytes() : 0);
}

struct Scan {
  uint64_t text_bytes = 0;
  int64_t documents = 0;
  std::optional<uint64_t> bound;  // for the hashes of the held-out documents of the corpus
  std::optional<uint64_t> cut;    // from here, look for the line that begins the held-out end of a single document
};

// The number of places that are not UTF-8. The tokenizer replaces each by U+FFFD.
int64_t broken_characters(std::string_view text) {
  std::string storage;
  const auto count = [](std::string_view in) {
    int64_t found = 0;
    for (size_t at = 0; (at = in.find("\xEF\xBF\xBD", at)) != std::string_view::npos; at += 3) ++found;
    return found;
  };
  const std::string_view repaired = text::repair_utf8(text, storage);
  return repaired.data() == text.data() ? 0 : count(repaired) - count(text);
}

Scan scan(const Corpus& corpus, const BuildOptions& options, Meter meter, BuildResult& counts) {
  AllDocuments documents(corpus, options);
  HeldOutChooser chooser(options.held_out);
  Scan result;
  for (Piece piece; documents.next(piece);) {
    if (piece.first && !documents.in_held_out_text()) chooser.add(document_hash(piece.text));
    result.text_bytes += piece.text.size();
    counts.broken_characters += broken_characters(piece.text);
    meter.advance(documents.consumed(), documents.documents());
  }
  counts.empty_documents = documents.empty_documents();
  counts.null_rows = documents.null_rows();
  result.documents = documents.documents();
  if (result.documents == 1 && options.held_out.fraction > 0 && result.text_bytes > 1) {
    const auto end = static_cast<double>(result.text_bytes) * (1 - options.held_out.fraction);
    result.cut = std::clamp<uint64_t>(static_cast<uint64_t>(end), 1, result.text_bytes - 1);
    ++result.documents;
  } else {
    result.bound = chooser.bound();
  }
  meter.finish();
  return result;
}

// Some pieces of text and, after a worker has processed them, their tokens, for each of the two splits.
struct Batch {
  struct Part {
    size_t end;  // in `text`
    size_t split;
    size_t root;  // index of its source
    bool last;
  };
  struct Output {
    std::vector<uint32_t> tokens;
    int64_t documents = 0;
    uint64_t text_bytes = 0;
    std::vector<int64_t> source_tokens;

    void add_tokens(size_t source, int64_t count) {
      if (source_tokens.size() <= source) source_tokens.resize(source + 1);
      source_tokens[source] += count;
    }
  };
  std::string text;
  std::vector<Part> parts;
  std::array<Output, 2> outputs;
};

class BatchReader {
 public:
  BatchReader(const Corpus& corpus, const BuildOptions& options, const Scan& scan)
      : documents_(corpus, options), bound_(scan.bound), cut_(scan.cut) {}

  bool next(Batch& batch) {
    while (batch.text.size() < kBatchBytes && documents_.next(piece_)) {
      if (piece_.first) split_ = is_held_out() ? kVal : kTrain;
      const size_t cut = position_of_cut();
      if (cut > 0) {
        add(batch, std::string_view(piece_.text).substr(0, cut), /*last=*/true);
        split_ = kVal;
        cut_.reset();
      }
      read_ += piece_.text.size();
      if (cut < piece_.text.size()) add(batch, std::string_view(piece_.text).substr(cut), piece_.last);
    }
    return !batch.parts.empty();
  }

 private:
  void add(Batch& batch, std::string_view text, bool last) const {
    batch.text += text;
    batch.parts.push_back({batch.text.size(), split_, documents_.root(), last});
  }

  // The position in the piece where the held-out end of a single document begins: after the first line end from `cut_`
  // on. If there is none before the text ends, it is `cut_`, moved to the beginning of a character. 0: not in this
  // piece.
  size_t position_of_cut() const {
    const std::string& text = piece_.text;
    if (!cut_ || *cut_ >= read_ + text.size()) return 0;
    size_t cut = *cut_ > read_ ? *cut_ - read_ : 0;
    const size_t line_end = text.find('\n', cut);
    if (line_end != std::string::npos && !(piece_.last && line_end + 1 == text.size())) return line_end + 1;
    if (!piece_.last) return 0;
    while (cut > 1 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    return std::max<size_t>(cut, 1);
  }

  bool is_held_out() const {
    return documents_.in_held_out_text() || (bound_ && document_hash(piece_.text) <= *bound_);
  }

  AllDocuments documents_;
  std::optional<uint64_t> bound_, cut_;
  uint64_t read_ = 0;  // bytes of text before the piece
  Piece piece_;
  size_t split_ = kTrain;
};

void encode_batch(const Encoder& encoder, Batch& batch) {
  size_t begin = 0;
  for (const Batch::Part& part : batch.parts) {
    const std::string_view text = std::string_view(batch.text).substr(begin, part.end - begin);
    Batch::Output& output = batch.outputs[part.split];
    const size_t before = output.tokens.size();
    encoder.encode(text, output.tokens);
    if (part.last) {
      output.tokens.push_back(encoder.end_of_text);
      ++output.documents;
    }
    output.add_tokens(part.root, static_cast<int64_t>(output.tokens.size() - before));
    output.text_bytes += text.size();
    begin = part.end;
  }
}

// Takes the finished batches: the writer and the identity of each split.
class Sink {
 public:
  Sink(const std::filesystem::path& folder, const Encoder& encoder, int64_t shard_tokens, Meter meter)
      : folder_(folder),
        writers_{
            {{folder, "train", encoder.vocab_size, shard_tokens}, {folder, "val", encoder.vocab_size, shard_tokens}}},
        meter_(meter) {}

  void write(const Batch& batch) {
    for (size_t split : {kTrain, kVal}) {
      const Batch::Output& output = batch.outputs[split];
      writers_[split].append(output.tokens);
      identities_[split].documents += output.documents;
      identities_[split].text_bytes += output.text_bytes;
      auto& sources = identities_[split].sources;
      if (sources.size() < output.source_tokens.size()) sources.resize(output.source_tokens.size());
      for (size_t i = 0; i < output.source_tokens.size(); ++i) sources[i].tokens += output.source_tokens[i];
    }
    const auto& [train, val] = identities_;
    meter_.advance(train.text_bytes + val.text_bytes, train.documents + val.documents,
                   writers_[kTrain].tokens() + writers_[kVal].tokens());
  }

  // Both splits are on disk before the old ones are removed. train.json, which marks the whole as complete, comes last.
  void commit(const Identity& common, const Sources& sources, const Scan& expected, BuildResult& result) {
    check_unchanged(expected);
    for (ShardWriter& writer : writers_) writer.flush();
    std::filesystem::remove(identity_path(folder_, "train"));
    if (identities_[kVal].documents > 0) {
      const auto& held_out = sources.held_out.empty() ? sources.train : sources.held_out;
      result.val = writers_[kVal].commit(filled(common, held_out, kVal));
    } else {
      remove_shards(folder_, "val");
    }
    result.train = writers_[kTrain].commit(filled(common, sources.train, kTrain));
    meter_.finish();
  }

 private:
  void check_unchanged(const Scan& expected) const {
    const auto& [train, val] = identities_;
    if (train.documents + val.documents == expected.documents &&
        train.text_bytes + val.text_bytes == expected.text_bytes) {
      return;
    }
    throw Error(fmt::format(
        "data: the corpus changed while it was read: expected {} documents of {} bytes, got {} of {}",
        expected.documents, expected.text_bytes, train.documents + val.documents, train.text_bytes + val.text_bytes));
  }
  Identity filled(Identity identity, const std::vector<Source>& sources, size_t split) const {
    identity.sources = sources;
    const auto& counted = identities_[split].sources;  // the last may have no tokens in this split
    for (size_t i = 0; i < counted.size(); ++i) identity.sources[i].tokens = counted[i].tokens;
    identity.documents = identities_[split].documents;
    identity.text_bytes = identities_[split].text_bytes;
    return identity;
  }

  std::filesystem::path folder_;
  std::array<ShardWriter, 2> writers_;
  std::array<Identity, 2> identities_;
  Meter meter_;
};

void check(const Encoder& encoder, const BuildOptions& options) {
  if (encoder.vocab_size <= 0 || encoder.end_of_text >= encoder.vocab_size) {
    throw Error(fmt::format("data: expected an end-of-text token below the vocabulary size {}, got {}",
                            encoder.vocab_size, encoder.end_of_text));
  }
  if (options.held_out_text && (options.held_out.fraction > 0 || options.held_out.documents > 0))
    throw Error("data: expected a held-out text or a held-out part of the corpus, got both");
  if (options.workers < 1) throw Error(fmt::format("data: expected at least 1 worker, got {}", options.workers));
}

}  // namespace

BuildResult build(const Corpus& corpus, const Encoder& encoder, const std::filesystem::path& folder,
                  const BuildOptions& options, const std::function<void(const Progress&)>& progress) {
  check(encoder, options);
  BuildResult result;
  result.skipped = corpus.skipped();

  const uint64_t bytes = bytes_of(corpus, options);
  Meter hashing(Stage::Hash, bytes, progress);
  Identity common;
  const Sources sources = hash_sources(corpus, options, [&](uint64_t done) { hashing.advance(done); });
  common.tokenizer_hash = encoder.hash;
  common.end_of_text = encoder.end_of_text;
  common.recipe = recipe(corpus, sources, encoder, options);
  hashing.finish();

  const Scan scanned = scan(corpus, options, Meter(Stage::Scan, bytes, progress), result);

  const io::FolderLock output(folder);
  Sink sink(folder, encoder, options.shard_tokens, Meter(Stage::Encode, scanned.text_bytes, progress));
  BatchReader reader(corpus, options, scanned);
  OrderedWorkers<Batch> workers(options.workers, kBatchesUnderWay, [&](Batch& batch) { encode_batch(encoder, batch); });
  for (Batch batch; reader.next(batch); batch = {}) {
    if (workers.full()) sink.write(workers.take());
    workers.submit(std::move(batch));
  }
  while (!workers.empty()) sink.write(workers.take());
  sink.commit(common, sources, scanned, result);
  if (scanned.cut) result.cut_bytes = result.val->text_bytes;
  return result;
}

Sources hash_sources(const Corpus& corpus, const BuildOptions& options, const std::function<void(uint64_t)>& advance) {
  Sources sources{hash_sources(corpus, advance), {}};
  if (options.held_out_text) {
    sources.held_out = hash_sources(*options.held_out_text, [&](uint64_t bytes) {
      if (advance) advance(corpus.bytes() + bytes);
    });
  }
  return sources;
}

std::string recipe(const Corpus& corpus, const Sources& sources, const Encoder& encoder, const BuildOptions& options) {
  // Paths are left out: the same bytes elsewhere give the same shards.
  const ReaderOptions& reader = corpus.options();
  nlohmann::json json{{"tokenizer", encoder.hash},
                      {"vocab_size", encoder.vocab_size},
                      {"end_of_text", encoder.end_of_text},
                      {"held_out", {options.held_out.fraction, options.held_out.documents}},
                      {"shard_tokens", options.shard_tokens},
                      {"separator", reader.separator},
                      {"text_field", reader.text_field},
                      {"piece_bytes", reader.piece_bytes}};
  for (const Source& source : sources.train) json["sources"].push_back({source.files, source.bytes, source.hash});
  for (const Source& source : sources.held_out)
    json["held_out_sources"].push_back({source.files, source.bytes, source.hash});
  return io::hash_bytes(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace prism::data
