#include <gtest/gtest.h>

#include "prism/data/format_reader.h"
#include "prism/io/error.h"
#include "tests/io/temporary_folder.h"

namespace prism::data {
namespace {

TEST(ABuildWithoutArrow, SaysHowToReadParquet) {
  const std::string message = io::message_of<Error>([] { read_parquet("some/file.parquet", {}); });
  EXPECT_TRUE(io::contains(message, "some/file.parquet: this build of Prism cannot read Parquet"));
  EXPECT_TRUE(io::contains(message, "install the Python package pyarrow"));
}

}  // namespace
}  // namespace prism::data
