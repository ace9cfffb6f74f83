#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/data/helpers.h"

namespace prism::data {
namespace {

// One token per 256 bytes, so that the output of a gigabyte stays small.
Encoder sparse_encoder() {
  const auto encode = [](std::string_view text, std::vector<uint32_t>& tokens) {
    for (size_t at = 0; at < text.size(); at += 256) tokens.push_back(static_cast<unsigned char>(text[at]));
  };
  return {encode, "sparse", 257, 256};
}

// Writes the block `repeats` times into one zstd stream, without holding all of it in memory.
std::string write_zstd(const std::filesystem::path& path, std::string_view block, int repeats) {
  ZSTD_CCtx* encoder = ZSTD_createCCtx();
  std::ofstream file(path, std::ios::binary);
  std::string buffer(ZSTD_CStreamOutSize(), '\0');
  for (int i = 0; i <= repeats; ++i) {
    ZSTD_inBuffer input{block.data(), i < repeats ? block.size() : 0, 0};
    const ZSTD_EndDirective mode = i < repeats ? ZSTD_e_continue : ZSTD_e_end;
    size_t left = 1;
    while (left > 0) {
      ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
      left = ZSTD_compressStream2(encoder, &output, &input, mode);
      file.write(buffer.data(), static_cast<std::streamsize>(output.pos));
      if (mode == ZSTD_e_continue && input.pos == input.size) break;
    }
  }
  ZSTD_freeCCtx(encoder);
  return path.string();
}

struct Outcome {
  int status;
  double peak_mib;
};

// Builds in a process of its own and returns the peak of its resident memory.
Outcome build_apart(const std::string& path, const std::filesystem::path& out) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 1;
    try {
      const BuildResult result = build(Corpus({path}), sparse_encoder(), out, {});
      status = result.train.text_bytes > 1'000'000'000 ? 0 : 2;
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  rusage usage{};
  ::wait4(pid, &status, 0, &usage);
  return {WEXITSTATUS(status), static_cast<double>(usage.ru_maxrss) / 1024};
}

class Memory : public testing::Test {
 protected:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  void SetUp() override {
    GTEST_SKIP() << "a sanitizer keeps freed memory, and the thread sanitizer cannot follow a fork";
  }
#endif

  void expect_bounded(const std::string& path) {
    const Outcome outcome = build_apart(path, folder_ / "shards");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_LT(outcome.peak_mib, 128);
    RecordProperty("peak_mib", static_cast<int>(outcome.peak_mib));
  }

  std::string lines(const std::string& line, size_t bytes) {
    std::string block;
    while (block.size() < bytes) block += line;
    return block;
  }

  TemporaryFolder folder_;
};

TEST_F(Memory, StaysBoundedForAGigabyteInOneDocument) {
  expect_bounded(write_zstd(folder_ / "a.txt.zst", lines("a line of an endless book\n", 10'000'000), 101));
}

TEST_F(Memory, StaysBoundedForAGigabyteInOneWord) {
  expect_bounded(write_zstd(folder_ / "a.txt.zst", lines("x", 10'000'000), 101));
}

TEST_F(Memory, StaysBoundedForAGigabyteOfSmallDocuments) {
  const std::string document = lines("a line of a short text\n", 2000) + "<|endoftext|>\n";
  expect_bounded(write_zstd(folder_ / "a.txt.zst", lines(document, 10'000'000), 103));
}

}  // namespace
}  // namespace prism::data
