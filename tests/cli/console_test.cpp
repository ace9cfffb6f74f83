#include "prism/cli/console.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

namespace prism::cli {
namespace {

using std::chrono::duration;

// A temporary stream that remembers what was written to it.
class Written {
 public:
  Written() : file_(std::tmpfile()) {}
  ~Written() { std::fclose(file_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  std::FILE* file() { return file_; }
  // Reads past the stream's position, so that another thread may be writing.
  std::string text() {
    std::fflush(file_);
    struct stat status {};
    fstat(fileno(file_), &status);
    std::string text(static_cast<size_t>(status.st_size), '\0');
    text.resize(static_cast<size_t>(pread(fileno(file_), text.data(), text.size(), 0)));
    return text;
  }

 private:
  std::FILE* file_;
};

TEST(ProgressLine, IsWrittenOverOnATerminal) {
  Written written;
  {
    ProgressLine line({.out = written.file(), .live = true, .live_interval = duration<double>(0)});
    line.update("one");
    line.update("two");
  }
  EXPECT_EQ(written.text(), "\rone\x1b[K\rtwo\x1b[K\r\x1b[K");
}

TEST(ProgressLine, StaysWithinTheWidth) {
  Written written;
  {
    ProgressLine line({.out = written.file(), .live = true});
    line.update(std::string(200, 'x'));
  }
  EXPECT_EQ(written.text(), "\r" + std::string(78, 'x') + "…\x1b[K\r\x1b[K") << "a file counts as 80 columns";
}

TEST(ProgressLine, OfManyUpdatesShowsFew) {
  Written written;
  {
    ProgressLine line({.out = written.file(), .live = true, .live_interval = duration<double>(1000)});
    line.update("first");
    EXPECT_FALSE(line.due());
    line.update("second");
  }
  EXPECT_EQ(written.text(), "\rfirst\x1b[K\r\x1b[K");
}

TEST(ProgressLine, ElsewhereIsPlainLinesAndShortWorkSaysNothing) {
  Written written;
  {
    ProgressLine line({.out = written.file()});
    EXPECT_FALSE(line.due());
    line.update("at once");
    line.note("a note");
  }
  EXPECT_EQ(written.text(), "a note\n");

  Written often;
  {
    ProgressLine line({.out = often.file(), .plain_interval = duration<double>(0)});
    line.update("one");
    line.update("two");
  }
  EXPECT_EQ(often.text(), "one\ntwo\n") << "no control characters";
}

TEST(ProgressLine, MakesRoomForANoteAndForAnErrorMessage) {
  Written written;
  try {
    ProgressLine line({.out = written.file(), .live = true, .live_interval = duration<double>(0)});
    line.update("moving");
    line.note("stays");
    line.update("moving on");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
    std::fputs("error\n", written.file());
  }
  EXPECT_EQ(written.text(), "\rmoving\x1b[K\r\x1b[Kstays\n\rmoving on\x1b[K\r\x1b[Kerror\n");
}

// Waits until the stream holds the text, however late a busy machine writes it.
bool says(Written& written, const std::string& text) {
  for (int i = 0; i < 60000; ++i) {
    if (written.text().find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(ProgressLine, SaysWhatTakesLongWhileNothingElseIsHeard) {
  for (const bool live : {false, true}) {
    Written written;
    ProgressLine line({.out = written.file(),
                       .live = live,
                       .plain_interval = duration<double>(0.1),
                       .silence = duration<double>(0.05)});
    line.doing("waiting for the first step");
    EXPECT_TRUE(says(written, " s … waiting for the first step"));
    line.doing("something else");
    EXPECT_TRUE(says(written, " s … something else"));
  }
}

TEST(ProgressLine, SaysNothingOfWhatIsDoneAtOnce) {
  Written written;
  {
    ProgressLine line({.out = written.file(), .live = true, .silence = duration<double>(100)});
    line.doing("quick work");
  }
  EXPECT_EQ(written.text(), "");
}

TEST(Pace, IsUnknownBeforeAnythingIsDone) {
  const Pace pace;
  EXPECT_EQ(pace.seconds_left(0, 10), std::numeric_limits<double>::infinity());
  EXPECT_EQ(pace.seconds_left(10, 10), 0);
  EXPECT_EQ(pace.seconds_left(12, 10), 0) << "more than was expected";
}

TEST(Numbers, AreGroupedByThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Numbers, OfThingsAreSingularForOne) {
  EXPECT_EQ(io::counted(0, "file"), "0 files");
  EXPECT_EQ(io::counted(1, "file"), "1 file");
  EXPECT_EQ(io::counted(1234, "file"), "1,234 files");
}

TEST(Numbers, OfBytesChooseTheirUnit) {
  EXPECT_EQ(in_bytes(0), "0 B");
  EXPECT_EQ(in_bytes(999), "999 B");
  EXPECT_EQ(in_bytes(1000), "1.0 kB");
  EXPECT_EQ(in_bytes(999949), "999.9 kB");
  EXPECT_EQ(in_bytes(999951), "1.0 MB") << "never 1000.0 kB";
  EXPECT_EQ(in_bytes(46.04e6), "46.0 MB");
  EXPECT_EQ(in_bytes(2e18), "2000.0 PB");
}

TEST(Numbers, OfSecondsChooseTheirUnit) {
  EXPECT_EQ(in_time(0), "0.0 s");
  EXPECT_EQ(in_time(9.94), "9.9 s");
  EXPECT_EQ(in_time(9.96), "10 s");
  EXPECT_EQ(in_time(59.6), "1 min 00 s");
  EXPECT_EQ(in_time(185), "3 min 05 s");
  EXPECT_EQ(in_time(7620), "2 h 07 min");
  EXPECT_EQ(in_time(273600), "3 d 4 h");
  EXPECT_EQ(in_time(std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_EQ(in_time(-1), "unknown");
}

TEST(Numbers, OfPartsReachOneHundredOnlyAtTheEnd) {
  EXPECT_EQ(in_percent(0, 10), "  0 %");
  EXPECT_EQ(in_percent(999, 1000), " 99 %");
  EXPECT_EQ(in_percent(1000, 1000), "100 %");
  EXPECT_EQ(in_percent(1001, 1000), "100 %");
  EXPECT_EQ(in_percent(0, 0), "100 %");
}

TEST(Fitted, CutsBetweenCharactersAndMarksTheCut) {
  EXPECT_EQ(fitted("abc", 3), "abc");
  EXPECT_EQ(fitted("abcd", 3), "ab…");
  EXPECT_EQ(fitted("äöü", 3), "äöü");
  EXPECT_EQ(fitted("äöüß", 3), "äö…");
  EXPECT_EQ(fitted("abc", 1), "…");
  EXPECT_EQ(fitted("abc", 0), "");
}

}  // namespace
}  // namespace prism::cli
