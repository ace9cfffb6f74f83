#include "prism/io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "prism/io/error.h"

namespace prism::io {

namespace {

using nlohmann::json;
using Event = json::parse_event_t;

constexpr int kMaxDepth = 128;

// nlohmann::json silently keeps the last of two equal keys; this callback sees both.
class StrictRules {
 public:
  explicit StrictRules(std::string_view where) : where_(where) {}

  bool operator()(int depth, Event event, const json& value) {
    if (depth > kMaxDepth) throw Error(fmt::format("{}: JSON nested deeper than {} levels", where_, kMaxDepth));
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(value.get_ref<const std::string&>()).second) {
      throw Error(fmt::format("{}: key {} appears twice in one JSON object", where_,
                              quote(value.get_ref<const std::string&>())));
    }
    return true;
  }

 private:
  std::string_view where_;
  std::vector<std::set<std::string>> keys_;
};

// Removes nlohmann's error number, and the text it read last, which may be broken or megabytes long.
std::string_view essence(std::string_view message) {
  if (const auto number_end = message.find("] "); number_end != std::string::npos)
    message.remove_prefix(number_end + 2);
  return message.substr(0, std::min(message.find("; last read"), kMaxShown));
}

}  // namespace

json parse_json(std::string_view text, std::string_view where) {
  // The parser would treat a zero byte as the end of the text, and skip a byte-order mark.
  if (const auto at = text.find('\0'); at != std::string_view::npos) {
    throw Error(fmt::format("{}: invalid JSON: zero byte at offset {}", where, at));
  }
  if (text.starts_with("\xEF\xBB\xBF")) throw Error(fmt::format("{}: invalid JSON: byte-order mark", where));
  try {
    StrictRules rules(where);
    return json::parse(text.begin(), text.end(), std::ref(rules));
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: invalid JSON: {}", where, essence(error.what())));
  }
}

std::string quote(std::string_view text) {
  const bool cut = text.size() > kMaxShown;
  return json(text.substr(0, kMaxShown)).dump(-1, ' ', false, json::error_handler_t::replace) + (cut ? "…" : "");
}

}  // namespace prism::io
