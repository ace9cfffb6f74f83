#include "prism/dist/communicator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/dist/threads.h"

namespace prism::dist {
namespace {

TEST(Communicator, GathersTextsOfDifferentLengths) {
  Threads::run(3, [](const std::shared_ptr<Communicator>& all) {
    const auto texts = all->gather(std::string(static_cast<size_t>(all->rank() * 2), 'x'));
    TORCH_CHECK(texts == (std::vector<std::string>{"", "xx", "xxxx"}));
  });
  EXPECT_EQ(one_process()->gather("alone"), std::vector<std::string>{"alone"});
}

TEST(Communicator, AMistakeOfOneProcessIsAnErrorOnAll) {
  for (const int64_t guilty : {0, 2}) {
    Threads::run(3, [&](const std::shared_ptr<Communicator>& all) {
      std::string text = "none";
      try {
        together(*all, [&] {
          if (all->rank() == guilty) throw Error("no such file");
        });
      } catch (const AgreedError& error) {
        text = error.what();
      }
      const std::string expected = all->rank() != 0 ? "" : guilty == 0 ? "no such file" : "process 2: no such file";
      TORCH_CHECK(text == expected, "rank ", all->rank(), ": ", text);
    });
  }
}

TEST(Communicator, AFailureOfOneProcessIsAFailureOnAll) {
  Threads::run(2, [](const std::shared_ptr<Communicator>& all) {
    bool failed = false;
    try {
      together(*all, [&] {
        if (all->rank() == 1) throw std::runtime_error("disk full");
      });
    } catch (const AgreedFailure& failure) {
      failed = all->rank() != 0 || failure.what() == std::string("process 1: disk full");
    }
    TORCH_CHECK(failed);
  });
}

TEST(Communicator, ADifferenceIsNamedOnce) {
  Threads::run(3, [](const std::shared_ptr<Communicator>& all) {
    std::string text = "none";
    try {
      expect_equal(*all, "training data", all->rank() == 2 ? "b" : "a");
    } catch (const AgreedError& error) {
      text = error.what();
    }
    const std::string expected =
        "the processes must have the same training data: it is a on process 0 and b on process 2";
    TORCH_CHECK(text == (all->rank() == 0 ? expected : ""), text);
  });
}

TEST(Communicator, OneProcessLeavesEverythingAsItIs) {
  const auto alone = one_process();
  Tensor values = torch::arange(4);
  alone->sum(values);
  alone->maximum(values);
  alone->broadcast(values, 0);
  alone->all_gather(values, {4});
  EXPECT_TRUE(alone->all_to_all(values, {4}, {4}).wait().equal(torch::arange(4)));
  EXPECT_TRUE(values.equal(torch::arange(4)));
  EXPECT_THROW(together(*alone, [] { throw Error("as it is"); }), Error);
}

}  // namespace
}  // namespace prism::dist
