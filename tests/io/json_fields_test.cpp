#include "prism/io/json_fields.h"

#include "prism/io/error.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

using Json = nlohmann::json;

enum class Color { Red, Blue };
constexpr std::array<const char*, 2> words(Color) { return {"red", "blue"}; }

struct Part {
  double size = 0;
  std::optional<double> error;
};

struct Thing {
  std::string name;
  int64_t count = 0;
  bool is_new = false;
  Color color = Color::Red;
  std::vector<Part> parts;
  std::optional<int64_t> last;
  std::map<std::string, double> prices;
};

template <class Fields>
void fields(Fields& list, Part& part) {
  list("size", part.size)("error?", part.error);
}

template <class Fields>
void fields(Fields& list, Thing& thing) {
  list("name", thing.name)("count", thing.count)("new?", thing.is_new)("color", thing.color);
  list("parts", thing.parts)("last", thing.last)("prices?", thing.prices);
}

const Json kThing = {{"name", "a"},
                     {"count", 3},
                     {"new", true},
                     {"color", "blue"},
                     {"parts", {{{"size", 1.5}}, {{"size", nullptr}, {"error", nullptr}}}},
                     {"last", 7},
                     {"prices", {{"x", 0.25}}}};

std::string refusal(const std::string& pointer, const Json& value) {
  auto broken = kThing;
  broken[Json::json_pointer(pointer)] = value;
  return message_of<Error>([&] { from_json<Thing>(broken, "file", UnknownKeys::Refused); });
}

TEST(JsonFields, AStructIsWrittenAsItWasRead) { EXPECT_EQ(to_json(from_json<Thing>(kThing, "file")), kThing); }

TEST(JsonFields, WhatIsEmptyIsNullOrLeftOut) {
  EXPECT_EQ(to_json(Thing{}),
            Json({{"name", ""}, {"count", 0}, {"color", "red"}, {"parts", Json::array()}, {"last", nullptr}}));
  const auto thing = from_json<Thing>(to_json(Thing{}), "file", UnknownKeys::Refused);
  EXPECT_FALSE(thing.is_new || thing.last);
}

TEST(JsonFields, ANumberThatIsNotFiniteIsNullAndComesBackAsNan) {
  EXPECT_EQ(to_json(Part{std::numeric_limits<double>::infinity(), NAN}), Json({{"size", nullptr}, {"error", nullptr}}));
  const auto part = from_json<Part>(Json({{"size", nullptr}, {"error", nullptr}}), "file");
  EXPECT_TRUE(std::isnan(part.size) && part.error && std::isnan(*part.error));
}

TEST(JsonFields, AMistakeIsNamedByItsPlace) {
  EXPECT_EQ(refusal("/name", 1), "file: name: expected text, got \"1\"");
  EXPECT_EQ(refusal("/count", 1.5), "file: count: expected an integer, got \"1.5\"");
  EXPECT_EQ(refusal("/count", UINT64_MAX), "file: count: expected an integer, got \"18446744073709551615\"");
  EXPECT_EQ(refusal("/new", "yes"), "file: new: expected true or false, got \"\\\"yes\\\"\"");
  EXPECT_EQ(refusal("/color", "green"), "file: color: expected one of \"red\", \"blue\", got \"\\\"green\\\"\"");
  EXPECT_EQ(refusal("/parts", 1), "file: parts: expected a list, got \"1\"");
  EXPECT_EQ(refusal("/parts/1/size", "x"), "file: parts[1].size: expected a number or null, got \"\\\"x\\\"\"");
  EXPECT_EQ(refusal("/parts/0", Json::object()), "file: parts[0].size: missing");
  EXPECT_EQ(refusal("/prices/y", true), "file: prices.y: expected a number or null, got \"true\"");
  EXPECT_EQ(refusal("/parts/0/weight", 1), "file: parts[0]: unknown key \"weight\"");
}

TEST(JsonFields, KeysThatAreNotKnownMayBeIgnored) {
  auto newer = kThing;
  newer["added_later"] = 1;
  EXPECT_EQ(from_json<Thing>(newer, "file").count, 3);
}

}  // namespace
}  // namespace prism::io
