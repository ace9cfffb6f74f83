#include "prism/cli/progress.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace prism::cli {
namespace {

using std::chrono::duration;

// A stream in memory, and what was written to it.
class Written {
 public:
  Written() : file_(std::tmpfile()) {}
  ~Written() { std::fclose(file_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  std::FILE* file() { return file_; }
  std::string text() {
    std::string text;
    std::rewind(file_);
    for (int c; (c = std::fgetc(file_)) != EOF;) text += static_cast<char>(c);
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

// Waits until the stream holds the text; false after ten seconds.
bool says(Written& written, const std::string& text) {
  for (int i = 0; i < 1000; ++i) {
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
    EXPECT_TRUE(says(written, "0.0 s … waiting for the first step"));
    line.doing("something else");
    EXPECT_TRUE(says(written, "something else"));
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

}  // namespace
}  // namespace prism::cli
