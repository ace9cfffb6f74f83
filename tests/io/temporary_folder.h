#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <typeinfo>

namespace prism::io {

// A folder for one test, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    // In memory if possible, since the code under test flushes to disk all the time.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    std::string name =
        ((memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path()) / "prism-io-XXXXXX")
            .string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  size_t entries() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::filesystem::path path_;
};

// Returns the message of the exception that the action throws. An exception of another type fails the test.
template <typename Exception, typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const std::exception& error) {
    EXPECT_EQ(std::string(typeid(error).name()), typeid(Exception).name()) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected \"" << part << "\" in \"" << text << "\"";
}

}  // namespace prism::io
