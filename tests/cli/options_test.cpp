#include "prism/cli/options.h"

#include <gtest/gtest.h>

namespace prism::cli {
namespace {

TEST(ShellWord, IsTheTextItselfIfAShellReadsItAsOneWord) {
  EXPECT_EQ(shell_word("runs/my-run_1.0"), "runs/my-run_1.0");
  EXPECT_EQ(shell_word("compare.seeds=1,2"), "compare.seeds=1,2");
}

TEST(ShellWord, IsQuotedOtherwise) {
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my runs"), "'my runs'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word("compare.seeds=[1]"), "'compare.seeds=[1]'");
}

}  // namespace
}  // namespace prism::cli
