// Any text as a run's JSON lines: refused with prism::Error, or resuming keeps whole lines from the beginning, up to
// the step, and a line can be appended.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "prism/io/error.h"
#include "prism/io/json_lines.h"

namespace {

constexpr int64_t kStep = 5;

void resume_in_memory(std::string_view text) {
  const int fd = ::memfd_create("lines", 0);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  const auto path = "/proc/self/fd/" + std::to_string(fd);
  try {
    auto writer = prism::io::JsonLinesWriter::resume(path, kStep);
    const auto kept = static_cast<size_t>(::lseek(fd, 0, SEEK_END));
    if (kept > text.size() || (kept > 0 && text[kept - 1] != '\n')) std::abort();
    if (writer.last_step().has_value() != (kept > 0) || writer.last_step().value_or(0) > kStep) std::abort();
    writer.append({{"step", kStep}});
    if (::lseek(fd, 0, SEEK_END) != static_cast<off_t>(kept + sizeof("{\"step\":5}"))) std::abort();
  } catch (const prism::Error&) {
    if (::lseek(fd, 0, SEEK_END) != static_cast<off_t>(text.size())) std::abort();
  }
  ::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  int64_t lines = 0;
  try {
    prism::io::visit_json_lines(text, "input", [&](const nlohmann::json& object, int64_t line) {
      if (!object.is_object() || line != ++lines) std::abort();
    });
  } catch (const prism::Error&) {
  }
  resume_in_memory(text);
  return 0;
}
