#include <fmt/format.h>

#include <random>

#include "prism/data/cut.h"
#include "prism/data/format_reader.h"
#include "tests/data/helpers.h"

namespace prism::data {
namespace {

std::string reading_error(const std::string& path, const ReaderOptions& options = {}) {
  return message_of<Error>([&] { documents_of(path, options); });
}

TEST(TextFiles, DocumentsLieBetweenSeparatorLines) {
  const TemporaryFolder folder;
  const auto path = write(folder / "a.txt", "one\ntwo\n<|endoftext|>\nthree\n<|endoftext|>\r\nfour");
  EXPECT_EQ(documents_of(path), (Strings{"one\ntwo\n", "three\n", "four"}));
}

TEST(TextFiles, OnlyALineThatHoldsNothingElseSeparates) {
  const TemporaryFolder folder;
  const std::string text = "a <|endoftext|>\n<|endoftext|> b\n <|endoftext|>\n<|endoftext|><|endoftext|>\n";
  EXPECT_EQ(documents_of(write(folder / "a.txt", text)), Strings{text});
}

TEST(TextFiles, SeparatorsAtBothEndsOfAFileMakeNoDocuments) {
  const TemporaryFolder folder;
  const auto path =
      write(folder / "a.txt", "<|endoftext|>\none\n<|endoftext|>\n\n \n<|endoftext|>\ntwo\n<|endoftext|>");
  const Corpus corpus({path});
  Documents documents(corpus);
  Strings texts;
  for (Piece piece; documents.next(piece);) texts.push_back(piece.text);
  EXPECT_EQ(texts, (Strings{"one\n", "two\n"}));
  EXPECT_EQ(documents.empty_documents(), 2);
  EXPECT_EQ(documents.documents(), 2);
  EXPECT_EQ(documents.consumed(), corpus.bytes());
}

TEST(TextFiles, TheSeparatorCanBeChangedOrSwitchedOff) {
  const TemporaryFolder folder;
  const auto path = write(folder / "a.txt", "one\n----\ntwo\n<|endoftext|>\n");
  ReaderOptions options;
  options.separator = "----";
  EXPECT_EQ(documents_of(path, options), (Strings{"one\n", "two\n<|endoftext|>\n"}));
  options.separator = "";
  EXPECT_EQ(documents_of(path, options), Strings{"one\n----\ntwo\n<|endoftext|>\n"});
}

TEST(TextFiles, KeepTheirBytesButForAByteOrderMark) {
  const TemporaryFolder folder;
  const std::string text = "caf\xC3\xA9 \xFF\xFE broken\r\n";
  EXPECT_EQ(documents_of(write(folder / "a.txt", "\xEF\xBB\xBF" + text)), Strings{text});
}

// At any piece size the pieces join to the text, and documents begin and end where they should.
TEST(TextFiles, PiecesMakeUpTheDocumentsAtEveryPieceSize) {
  std::mt19937 random(1);
  const Strings words = {"a",        "bc\n", " ", "\n", "<|endoftext|>", "\n<|endoftext|>\n", "\n<|endoftext|>\r\n",
                         "\xC3\xA9", "<|"};
  const TemporaryFolder folder;
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = "x";
    for (int i = 0; i < 40; ++i) text += words[random() % words.size()];
    const auto path = write(folder / "a.txt", text);
    const Strings whole = documents_of(path);
    ReaderOptions options;
    for (options.piece_bytes = 16; options.piece_bytes < 40; ++options.piece_bytes) {
      ASSERT_EQ(documents_of(path, options), whole) << text;
    }
  }
}

TEST(Pieces, AreWithinTheirSizeAndNeverEmpty) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "word" + std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
  const auto path = write(folder / "a.txt", text);
  ReaderOptions options;
  options.piece_bytes = 256;
  const Corpus corpus({path}, options);
  Documents documents(corpus);
  int64_t pieces = 0;
  for (Piece piece; documents.next(piece); ++pieces) {
    EXPECT_EQ(piece.first, pieces == 0);
    EXPECT_LE(piece.text.size(), 256u);
    EXPECT_GT(piece.text.size(), piece.last ? 0u : 128u);
  }
  EXPECT_GT(pieces, 50);
  EXPECT_EQ(documents.documents(), 1);
}

TEST(Cut, PrefersLinesThenWordsThenCharacters) {
  EXPECT_EQ(cut_position("aaaa\naaaaa\nbb cc dd ee", 16), 11u);
  EXPECT_EQ(cut_position("aaaa\nbbbbbb ccc dddd eeee", 16), 15u) << "the line ends too early";
  EXPECT_EQ(cut_position("aaaaaaaaa bb\n cc\n\nddddd", 16), 9u) << "a blank follows the line end";
  EXPECT_EQ(cut_position("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", 9), 8u);
  EXPECT_EQ(cut_position("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 9), 6u) << "not UTF-8";
}

TEST(FoldersOfText, AreReadInByteOrderOfTheirNames) {
  const TemporaryFolder folder;
  for (const std::string name : {"b/2.txt", "b/10.txt", "B.txt", "a.txt", "b.txt", "b/c/1.py"})
    write(folder / name, name);
  const Strings expected = {"B.txt", "a.txt", "b.txt", "b/10.txt", "b/2.txt", "b/c/1.py"};
  EXPECT_EQ(documents_of(folder.path().string()), expected);
  EXPECT_EQ(documents_of(folder.path().string() + "/"), expected);
}

TEST(FoldersOfText, SkipAndCountWhatIsNotText) {
  const TemporaryFolder folder;
  write(folder / "kept.py", "text");
  write(folder / "empty.py", "");
  write(folder / ".hidden.py", "hidden");
  write(folder / ".git/config.py", "hidden");
  write(folder / "binary.py", std::string("\x7f"
                                          "ELF\0\0",
                                          6));
  write(folder / "packed.py.gz", gzip(std::string("a\0b", 3)));
  write(folder / "other.md", "other");
  std::filesystem::create_symlink("nowhere", folder / "broken.py");
  std::filesystem::create_directory_symlink(".", folder / "loop.py");
  ReaderOptions options;
  options.extensions = {".py"};
  const Corpus corpus({folder.path().string()}, options);
  EXPECT_EQ(documents_of(corpus), Strings{"text"});
  EXPECT_EQ(corpus.skipped().empty, 1);
  EXPECT_EQ(corpus.skipped().hidden, 2);
  EXPECT_EQ(corpus.skipped().binary, 2);
  EXPECT_EQ(corpus.skipped().filtered, 1);
  EXPECT_EQ(corpus.skipped().special, 2);
}

TEST(FoldersOfText, FilterByExtensionThroughCompression) {
  const TemporaryFolder folder;
  write(folder / "a.txt.gz", gzip("gz"));
  write(folder / "b.txt.zst", zstd("zst"));
  write(folder / "c.txt", "plain");
  write(folder / "d.md", "other");
  ReaderOptions options;
  options.extensions = {".txt"};
  EXPECT_EQ(documents_of(folder.path().string(), options), (Strings{"gz", "zst", "plain"}));
  options.extensions = {".txt.zst", ".md"};
  EXPECT_EQ(documents_of(folder.path().string(), options), (Strings{"zst", "other"}));
}

TEST(FoldersOfText, ReadLinkedFiles) {
  const TemporaryFolder folder;
  write(folder / ".blobs/0", "linked");
  std::filesystem::create_symlink(".blobs/0", folder / "a.txt");
  EXPECT_EQ(documents_of(folder.path().string()), Strings{"linked"});
}

TEST(Corpora, AreReadInTheOrderGiven) {
  const TemporaryFolder folder;
  const auto b = write(folder / "b.txt", "b"), a = write(folder / "a.jsonl", R"({"text": "a"})");
  EXPECT_EQ(documents_of(Corpus({b, a})), (Strings{"b", "a"}));
}

TEST(JsonLines, GiveOneDocumentALine) {
  const TemporaryFolder folder;
  const auto path = write(folder / "a.jsonl",
                          "\xEF\xBB\xBF{\"id\": 1, \"text\": \"one\\nline \\u00e9\"}\r\n\n"
                          "{\"meta\": {\"text\": \"inner\", \"list\": [{\"text\": 3}]}, \"text\": \"two\"}\n"
                          "{\"text\": \"\"}\n{\"text\": \"three\"}");
  EXPECT_EQ(documents_of(path), (Strings{"one\nline \xC3\xA9", "two", "three"}));
  ReaderOptions options;
  options.text_field = "meta.text";
  EXPECT_TRUE(contains(reading_error(path, options),
                       "a.jsonl line 1: expected a JSON object with a string field \"meta.text\""));
}

TEST(JsonLines, MayRunOverTheEndsOfBuffers) {
  const TemporaryFolder folder;
  std::mt19937 random(2);
  Strings texts;
  std::string lines;
  for (int i = 0; i < 5000; ++i) {
    texts.push_back(std::to_string(i) + std::string(random() % 400, 'x'));
    lines += "{\"text\": \"" + texts.back() + "\"}\n";
  }
  EXPECT_TRUE(documents_of(write(folder / "a.jsonl", lines)) == texts);
}

TEST(JsonLines, CutLongDocumentsIntoPieces) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "word ";
  const auto path = write(folder / "a.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"b\"}\n");
  ReaderOptions options;
  options.piece_bytes = 32;
  EXPECT_EQ(documents_of(path, options), (Strings{text, "b"}));
}

TEST(JsonLines, PassOverNullAndCountIt) {
  const TemporaryFolder folder;
  const Corpus corpus({write(folder / "a.jsonl",
                             "{\"text\": null}\n{\"text\": \"a\", \"b\": null}\n{\"b\": [null], \"text\": null}\n")});
  Documents documents(corpus);
  Strings found;
  for (Piece piece; documents.next(piece);) found.push_back(piece.text);
  EXPECT_EQ(found, Strings{"a"});
  EXPECT_EQ(documents.null_rows(), 2);
}

TEST(JsonLines, RefuseOtherLinesWithFileLineExpectedAndGot) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\": 1}", "got a number in that field"},
      {"null", "got null in place of the object"},
      {"{\"text\": [\"a\"]}", "got an array in that field"},
      {"{\"text\": {\"text\": \"a\"}}", "got an object in that field"},
      {"{\"text\": true}", "got a boolean in that field"},
      {"{\"Text\": \"a\"}", "got an object without it"},
      {"{}", "got an object without it"},
      {"[\"text\"]", "got an array in place of the object"},
      {"\"text\"", "got a string in place of the object"},
      {"17", "got a number in place of the object"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "got the field \"text\" twice"},
      {"{\"text\": \"a\"", "got invalid JSON (parse error"},
      {"{\"text\": \"a\"} x", "got invalid JSON"},
      {"{\"text\": \"\xFF\"}", "got invalid JSON"},
      {"{\"text\": \"\\ud800\"}", "got invalid JSON"},
  };
  const TemporaryFolder folder;
  for (const auto& [line, got] : cases) {
    const auto path = write(folder / "a.jsonl", "{\"text\": \"fine\"}\n\n" + line + "\n");
    const auto expected = fmt::format("{} line 3: expected a JSON object with a string field \"text\", {}", path, got);
    EXPECT_TRUE(contains(reading_error(path), expected));
  }
}

TEST(JsonLines, RefuseLinesThatAreTooLong) {
  const TemporaryFolder folder;
  ReaderOptions options;
  options.max_line_bytes = 1000;
  const auto line = [](size_t bytes) { return "{\"text\": \"" + std::string(bytes - 12, 'x') + "\"}"; };
  ASSERT_EQ(line(1000).size(), 1000u);
  EXPECT_EQ(documents_of(write(folder / "a.jsonl", line(1000)), options).size(), 1u);
  const auto path = write(folder / "a.jsonl", line(20) + "\n" + line(1001));
  EXPECT_TRUE(contains(reading_error(path, options), "line 2: expected at most 1000 bytes in a line, got more"));
  write(folder / "a.jsonl", line(20) + "\n" + line(1'000'000));
  EXPECT_TRUE(contains(reading_error(path, options), "line 2: expected at most 1000 bytes in a line, got more"));
}

TEST(Corpora, RefuseWhatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  EXPECT_TRUE(
      contains(reading_error(root + "/none.txt"), "none.txt: expected a file or folder of text, found nothing"));
  EXPECT_TRUE(contains(reading_error(root), "expected a folder with text files, got none"));
  EXPECT_TRUE(contains(reading_error(write(folder / "empty.txt", "")), "empty.txt: expected text, got an empty file"));
  EXPECT_TRUE(
      contains(reading_error(write(folder / "blank.txt", " \n<|endoftext|>\n\n")), "expected at least one document"));
  EXPECT_TRUE(contains(reading_error(write(folder / "b.txt", std::string("ab\0c", 4))),
                       "b.txt: expected text, got binary data (a zero byte at offset 2)"));
  EXPECT_TRUE(contains(reading_error(write(folder / "a.parquet.gz", gzip("x"))), "not compressed as a whole"));
  EXPECT_TRUE(contains(message_of<Error>([] { Corpus({}); }), "got none"));
  EXPECT_TRUE(contains(reading_error("/dev/null"), "expected a file or a folder, got neither"));
}

TEST(Corpora, RefuseImpossibleOptions) {
  const TemporaryFolder folder;
  const auto path = write(folder / "a.txt", "a");
  EXPECT_TRUE(contains(reading_error(path, {.separator = "a\nb"}), "got one with a line break"));
  EXPECT_TRUE(contains(reading_error(path, {.text_field = ""}), "got an empty one"));
  EXPECT_TRUE(
      contains(reading_error(path, {.extensions = {"py"}}), "expected an extension such as \".txt\", got \"py\""));
  EXPECT_TRUE(contains(reading_error(path, {.piece_bytes = 3}), "at least 16 bytes, got 3"));
}

}  // namespace
}  // namespace prism::data
