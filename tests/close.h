#pragma once

// EXPECT_CLOSE(actual, expected, tolerance)  same shape; elements differ by at most tolerance · max(1, max |expected|)
// EXPECT_SAME(actual, expected)              same shape, type and values
// EXPECT_MESSAGE(statement, text)            the statement throws a c10::Error whose message contains the text

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>

namespace prism::test {

inline testing::AssertionResult is_close(const char* actual_text, const char* expected_text, const char* /*tolerance*/,
                                         const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  const auto failure = [&] {
    return testing::AssertionFailure() << actual_text << " against " << expected_text << ": ";
  };
  if (actual.sizes() != expected.sizes()) {
    return failure() << "shape " << actual.sizes() << ", expected " << expected.sizes();
  }
  if (actual.numel() == 0) return testing::AssertionSuccess();
  const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble);
  const at::Tensor e = expected.detach().to(at::kCPU, at::kDouble);
  const double error = (a - e).abs().masked_fill(a.eq(e), 0).max().item<double>();
  const double magnitude = std::max(1.0, e.abs().max().item<double>());
  if (error <= tolerance * magnitude) return testing::AssertionSuccess();
  return failure() << "shape " << actual.sizes() << ", largest error " << error << ", allowed " << tolerance << " · "
                   << magnitude;
}

inline testing::AssertionResult is_same(const char* actual_text, const char* expected_text, const at::Tensor& actual,
                                        const at::Tensor& expected) {
  if (actual.scalar_type() != expected.scalar_type()) {
    return testing::AssertionFailure() << actual_text << " is " << actual.scalar_type() << ", " << expected_text
                                       << " is " << expected.scalar_type();
  }
  return is_close(actual_text, expected_text, "0", actual, expected, 0);
}

template <class Statement>
testing::AssertionResult has_message(const char* statement_text, const char* /*text*/, const Statement& statement,
                                     const std::string& text) {
  const auto failure = [&] { return testing::AssertionFailure() << statement_text << ": "; };
  try {
    statement();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (message.find(text) != std::string::npos) return testing::AssertionSuccess();
    return failure() << "expected a message with\n  " << text << "\ngot\n  " << message;
  }
  return failure() << "expected an error with the message\n  " << text << "\ngot none";
}

}  // namespace prism::test

#define EXPECT_CLOSE(actual, expected, tolerance) \
  EXPECT_PRED_FORMAT3(prism::test::is_close, actual, expected, tolerance)
#define EXPECT_SAME(actual, expected) EXPECT_PRED_FORMAT2(prism::test::is_same, actual, expected)
#define EXPECT_MESSAGE(statement, text) \
  EXPECT_PRED_FORMAT2(                  \
      prism::test::has_message, [&] { statement; }, text)
