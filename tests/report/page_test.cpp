#include "prism/report/page.h"

#include <limits>
#include <regex>

#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json_fields.h"
#include "prism/report/assets.h"
#include "prism/report/page_fields.h"
#include "prism/report/thin.h"
#include "tests/io/temporary_folder.h"

namespace prism::report {
namespace {

using io::contains;
using io::message_of;
using io::TemporaryFolder;
using nlohmann::json;

json curve(size_t points) {
  json result = {
      {"step", json::array()}, {"tokens", json::array()}, {"seconds", json::array()}, {"loss", json::array()}};
  for (size_t i = 0; i < points; ++i) {
    result["step"].push_back(i + 1);
    result["tokens"].push_back(100 * (i + 1));
    result["seconds"].push_back(0.125 * static_cast<double>(i + 1));
    result["loss"].push_back(static_cast<double>(i % 10));
  }
  return result;
}

json small_document() {
  return {{"kind", "train"},
          {"title", "A run"},
          {"summary", json::array({{{"text", "It went well."}}})},
          {"optimizers", json::array({{{"id", "prism"}, {"label", "PRISM"}}})},
          {"runs",
           json::array(
               {{{"optimizer", "prism"}, {"lr", 0.02}, {"seed", 1}, {"status", "finished"}, {"train", curve(20)}}})}};
}

PageDocument read(const json& document) {
  return io::from_json<PageDocument>(document, "report", io::UnknownKeys::Refused);
}

// Returns the document that a page holds.
json document_in(const std::string& html) {
  const std::string open = "<script type=\"application/json\" id=\"document\">";
  const auto begin = html.find(open) + open.size();
  return io::parse_json(html.substr(begin, html.find("</script>", begin) - begin), "page");
}

json embedded(const json& document) { return document_in(html(read(document))); }

std::string refusal(const json& document) {
  return message_of<Error>([&] { html(read(document)); });
}

TEST(Page, ContainsTheDocumentAndEveryAsset) {
  const auto page = html(read(small_document()));
  EXPECT_EQ(embedded(small_document()), small_document());
  EXPECT_TRUE(contains(page, "<title>A run</title>"));
  EXPECT_EQ(page.find("{{"), std::string::npos);
  for (const auto& [name, bytes] : assets()) {
    if (name.ends_with(".html")) continue;  // the templates: this page's own, and that of bars
    EXPECT_TRUE(contains(page, std::string(bytes))) << name;
  }
}

TEST(Page, NamesNothingOutsideItself) {
  auto page = html(read(small_document()));
  for (const std::string name : {"http://www.w3.org/2000/svg"}) {  // names of formats, not addresses
    for (size_t at = 0; (at = page.find(name, at)) != std::string::npos;) page.erase(at, name.size());
  }
  EXPECT_EQ(page.find("http"), page.find("http-equiv"));
  EXPECT_EQ(page.find("http", page.find("http-equiv") + 1), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_TRUE(contains(page, "Content-Security-Policy\" content=\"default-src 'none'; "));
  EXPECT_EQ(page.find("@import"), std::string::npos);
}

TEST(Page, LetsNoTextOfTheDocumentBecomeMarkup) {
  auto document = small_document();
  const std::string attack = "</script><script>alert(1)</script><!--<script>&amp;{{script}}\u2028";
  document["title"] = document["config"] = document["optimizers"][0]["label"] = attack;
  const auto page = html(read(document));
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_TRUE(
      contains(page, "<title>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--&lt;script&gt;&amp;amp;"));
  EXPECT_EQ(embedded(document).at("config"), attack);
}

TEST(Page, ShowsNumbersThatAreNotFiniteAsUnknown) {
  auto document = small_document();
  document["runs"][0]["train"]["loss"][3] = std::numeric_limits<double>::quiet_NaN();
  document["runs"][0]["val_loss"] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(embedded(document)["runs"][0]["train"]["loss"][3].is_null());
  EXPECT_TRUE(embedded(document)["runs"][0]["val_loss"].is_null());
}

TEST(Page, ReplacesBrokenTextAndKeepsTheRest) {
  auto document = small_document();
  document["config"] =
      "a\xff"
      "b";
  EXPECT_EQ(embedded(document)["config"], "a\uFFFDb");
}

TEST(Page, IsWrittenWholeAndSaysWhatWroteItAndWhen) {
  const TemporaryFolder folder;
  write(read(small_document()), folder / "report.html");
  EXPECT_EQ(folder.entries(), 1u);
  auto document = document_in(io::read_file(folder / "report.html"));
  EXPECT_TRUE(std::regex_match(document.at("program").get<std::string>(), std::regex(R"(prism \d+\.\d+\.\d+)")));
  EXPECT_TRUE(
      std::regex_match(document.at("created").get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d UTC)")));
  document.erase("program");
  document.erase("created");
  EXPECT_EQ(document, small_document());
}

TEST(Page, NamesThePlaceOfEachMistake) {
  const auto broken = [](const std::string& pointer, const json& value) {
    auto document = small_document();
    document[json::json_pointer(pointer)] = value;
    return refusal(document);
  };
  EXPECT_TRUE(contains(broken("/kind", "show"), R"(report: kind: expected one of "compare", "train", "inspect", got)"));
  EXPECT_TRUE(contains(broken("/runs/0/lr", -1), "report: runs[0].lr: expected 0 or more, got"));
  EXPECT_TRUE(contains(broken("/runs/0/status", "failed"), "report: runs[0].status: expected one of"));
  EXPECT_TRUE(contains(broken("/runs/0/train/loss", {1, 2}),
                       "report: runs[0].train.loss: expected 20 numbers, as in the lists beside it, got 2"));
  EXPECT_TRUE(
      contains(broken("/runs/0/train/loss/4", "x"), "report: runs[0].train.loss[4]: expected a number or null"));
  EXPECT_TRUE(
      contains(broken("/runs/0/train/step/4", 4), "report: runs[0].train.step[4]: expected more than 4, got 4"));
  EXPECT_TRUE(contains(broken("/runs/0/learning_rate", 1), "report: runs[0]: unknown key \"learning_rate\""));
  EXPECT_TRUE(contains(broken("/summery", 1), "report: document: unknown key \"summery\""));
  EXPECT_TRUE(contains(broken("/runs/0/optimizer", "soap"),
                       "report: runs[0].optimizer: no optimizer has the id \"soap\"; known ids: prism"));
  const json value = {{"optimizer", "sgd"}, {"lr", 1}, {"paper", "3"}, {"here", "4"}};
  const json published = {{"paper_label", "loss"}, {"here_label", "loss"}, {"values", json::array({value})}};
  EXPECT_TRUE(contains(broken("/published", published),
                       "report: published.values[0].optimizer: no optimizer has the id \"sgd\""));
  EXPECT_TRUE(contains(broken("/baseline", "adamw"), "report: baseline: no optimizer has the id \"adamw\""));
  EXPECT_TRUE(contains(broken("/optimizers/1", {{"id", "prism"}, {"label", "x"}}),
                       "report: optimizers: two optimizers have the id \"prism\""));
  EXPECT_TRUE(contains(broken("/facts", json::array({{{"title", "t"}, {"rows", json::array({{"only"}})}}})),
                       "report: facts[0].rows[0]: expected a name and a value"));
  EXPECT_TRUE(contains(broken("/confidence", 95), "report: confidence: expected a number in (0, 1), got"));
  auto document = small_document();
  document.erase("title");
  EXPECT_EQ(refusal(document), "report: title: missing");
  EXPECT_TRUE(contains(refusal(json::array()), "report: document: expected an object, got array"));
}

TEST(Thinning, LeavesShortCurvesAlone) {
  auto document = small_document();
  document["runs"][0]["train"] = curve(Limits().points);
  EXPECT_EQ(embedded(document)["runs"][0]["train"], curve(Limits().points));
}

TEST(Thinning, KeepsTheMeanAndTheExtremesOfALongCurve) {
  auto document = small_document();
  const size_t size = 10 * Limits().points;  // each group of ten has the losses 0 … 9
  document["runs"][0]["train"] = curve(size);
  document["runs"][0]["train"]["loss"][5003] = 77.0;
  document["runs"][0]["train"]["loss"][6007] = nullptr;
  const auto thin = embedded(document)["runs"][0]["train"];
  for (const auto* key : {"step", "tokens", "seconds", "loss", "low", "high"}) {
    ASSERT_EQ(thin.at(key).size(), Limits().points) << key;
  }
  EXPECT_EQ(thin["loss"][0], 4.5);
  EXPECT_EQ(thin["low"][0], 0.0);
  EXPECT_EQ(thin["high"][0], 9.0);
  EXPECT_EQ(thin["step"][0], 5);
  EXPECT_EQ(thin["tokens"][0], 500);
  EXPECT_EQ(thin["seconds"][0], 0.625);
  EXPECT_EQ(thin["high"][500], 77.0);
  EXPECT_EQ(thin["loss"][500], 11.9);                   // (45 − 3 + 77)/10
  EXPECT_EQ(thin["loss"][600].get<double>(), 4.22222);  // (45 − 7)/9, to six digits
}

TEST(Thinning, DoneTwiceChangesNothing) {
  auto long_document = small_document();
  long_document["runs"][0]["train"] = curve(2500);
  auto document = read(long_document);
  thin_run(document.runs[0]);
  EXPECT_EQ(document.runs[0].train.step.size(), Limits().points);
  EXPECT_EQ(document_in(html(document)), io::to_json(document));
}

TEST(Thinning, EndsWhereAllLossesOfAGroupAreUnknown) {
  auto document = small_document();
  document["runs"][0]["train"] = curve(3 * Limits().points);
  for (size_t i = 0; i < 3; ++i) document["runs"][0]["train"]["loss"][300 + i] = nullptr;
  const auto thin = embedded(document)["runs"][0]["train"];
  EXPECT_TRUE(thin["loss"][100].is_null());
  EXPECT_FALSE(thin["loss"][101].is_null());
}

TEST(Thinning, KeepsBothEndsOfHeldOutCurvesAndSpectra) {
  auto document = small_document();
  auto& run = document["runs"][0];
  run["val"] = curve(2500);
  for (int64_t step = 1; step <= 20; ++step) {
    json record = {{"step", 10 * step}, {"matrix", "w"}, {"snr", json::array()}};
    for (int64_t i = 0; i < 200; ++i) record["snr"].push_back(i);
    run["spectra"].push_back(record);
  }
  const auto thin = embedded(document)["runs"][0];
  EXPECT_EQ(thin["val"]["step"].size(), Limits().points);
  EXPECT_EQ(thin["val"]["step"].front(), 1);
  EXPECT_EQ(thin["val"]["step"].back(), 2500);
  EXPECT_EQ(thin["spectra"].size(), Limits().steps);
  EXPECT_EQ(thin["spectra"].front()["step"], 10);
  EXPECT_EQ(thin["spectra"].back()["step"], 200);
  EXPECT_EQ(thin["spectra"][0]["snr"].size(), Limits().directions);
  EXPECT_EQ(thin["spectra"][0]["snr"].front(), 0);
  EXPECT_EQ(thin["spectra"][0]["snr"].back(), 199);
}

}  // namespace
}  // namespace prism::report
