#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace prism::report {

// One self-contained HTML page for a comparison, a training run or an inspection: the scripts and styles of
// prism/report/assets, and a PageDocument as JSON with everything the page shows. The page computes no statistics; it
// only smooths the training loss as the reader chooses.
//
// What is empty is not shown, nor what depends on it. A number that is not known or not finite is NaN, null in JSON.
// Times are in seconds or, with _ms, milliseconds, memory is in bytes, a loss is the mean cross-entropy in nats.

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class PageKind { Compare, Train, Inspect };
enum class Tone { Plain, Headline, Caution };  // a page has one headline, set large
enum class Edge { None, Low, High };           // the best rate is the first or the last of its grid
enum class RunStatus {
  Running,
  Finished,
  Interrupted,  // saved, can be resumed
  Diverged,  // the guard stopped it (train.max_skips non-finite steps in a row), or the loss at the end is not finite
};

constexpr std::array<const char*, 3> words(PageKind) { return {"compare", "train", "inspect"}; }
constexpr std::array<const char*, 3> words(Tone) { return {"plain", "headline", "caution"}; }
constexpr std::array<const char*, 3> words(Edge) { return {"", "low", "high"}; }
constexpr std::array<const char*, 4> words(RunStatus) { return {"running", "finished", "interrupted", "diverged"}; }
constexpr const char* word(RunStatus status) { return words(status)[static_cast<size_t>(status)]; }

struct Sentence {
  std::string text;  // **words** are set bold
  Tone tone = Tone::Plain;
};

struct Highlight {
  std::string value, label;
};

struct SweepRun {
  double lr = 0, loss = kUnknown;
  RunStatus status = RunStatus::Finished;
};

struct ToleratedRates {
  double low = 0, high = 0;
  bool low_open = false, high_open = false;  // it reaches the end of the grid
};

struct SeedLoss {
  int64_t seed = 0;
  double loss = kUnknown;
};

struct MeanLoss {
  double mean = kUnknown;
  std::optional<double> low = {}, high = {};  // the interval
};

struct FinalLoss : MeanLoss {
  std::vector<SeedLoss> seeds = {};
};

struct PageMemory {
  std::optional<int64_t> weights = {}, gradients = {}, optimizer = {}, peak = {};
  std::string of = {};  // "device" or "host"
};

struct PageOptimizer {
  std::string id, label = {};
  std::string detail = {};           // its settings in a few words
  std::vector<SweepRun> sweep = {};  // the first seed at each rate
  std::optional<double> best_lr = {};
  Edge edge = Edge::None;
  std::optional<ToleratedRates> tolerance = {};
  std::optional<FinalLoss> final = {};                                      // held-out loss at the best rate
  std::optional<MeanLoss> difference = {};                                  // paired, its loss minus the baseline's
  std::optional<double> tokens_to_baseline = {}, seconds_to_baseline = {};  // to its final loss; NaN: never reached
  std::optional<double> tokens_speedup = {}, seconds_speedup = {};          // the baseline's own number divided by that
  std::optional<double> step_ms = {}, optimizer_ms = {};  // median step, and the optimizer's part of it
  std::optional<PageMemory> memory = {};
};

// Lists of equal length, steps ascending.
struct LossCurve {
  std::vector<int64_t> step = {}, tokens = {};
  std::vector<double> seconds = {}, loss = {};
  std::vector<double> low = {}, high = {};  // the extremes where a point stands for several steps
  bool empty() const { return step.empty(); }
};

struct NormCurve {
  std::vector<int64_t> step = {};
  std::vector<double> weight = {};  // Frobenius norm over the matrices
  bool empty() const { return step.empty(); }
};

// A matrix at one recorded step.
struct Spectrum {
  int64_t step = 0;
  std::string matrix = {};                                   // name of the parameter
  std::optional<double> gamma = {};                          // γ of the law (1 + γ²/SNR²)^(−1/2), 0 for Muon
  std::vector<double> snr = {}, gain = {}, theory = {};      // per direction, strongest first, of equal length
  std::vector<double> singular_values = {};                  // of the momentum T, largest first
  std::vector<double> weight_singular_values = {};           // of the weights, largest first
  std::optional<double> weight_norm = {}, update_norm = {};  // Frobenius
};

struct PageRun {
  std::string optimizer = {};  // id
  double lr = 0;
  int64_t seed = 0;
  RunStatus status = RunStatus::Finished;
  bool best = false;                         // at the optimizer's best rate, so shown at first
  std::optional<int64_t> stopped_step = {};  // of a run that stopped early
  std::optional<double> loss = {}, val_loss = {}, seconds = {};
  std::string folder = {};
  LossCurve train = {}, val = {};  // val: of the held-out loss
  NormCurve norms = {};
  std::vector<Spectrum> spectra = {};
};

struct RoutingRow {
  std::string parameter;
  std::vector<int64_t> shape = {};
  std::string to, rule = {};
};

struct PageRouting {
  std::string optimizer;  // id of the optimizer whose runs are routed so
  std::vector<RoutingRow> rows = {};
};

struct Sample {
  std::string optimizer, prompt, text;  // what the model of the optimizer with that id generated
};

struct Facts {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows = {};  // name and value
};

// A number that a paper gives for an optimizer at a rate, beside the one measured here.
struct PublishedValue {
  std::string optimizer;  // id
  double lr = 0;
  std::string paper = {}, here = {};                        // as text
  std::optional<double> paper_value = {}, here_value = {};  // where the text is a number
  std::optional<double> here_low = {}, here_high = {};      // the interval
};

struct Published {
  std::string paper_label = {}, here_label = {};  // what the numbers of each side are
  std::vector<PublishedValue> values = {};
  bool empty() const { return values.empty(); }
};

struct PageDocument {
  PageKind kind = PageKind::Train;
  std::string title = {};
  std::string program = {}, created = {};      // name and version, date and time; `write` fills in what is empty
  std::vector<Sentence> summary = {};          // shown first, in this order: who won, by how much, how sure
  std::vector<Highlight> highlights = {};      // at most four figures shown large
  std::string baseline = {};                   // id of the optimizer that the others are compared with
  std::optional<double> tolerance = {};        // the loss within which a rate counts as tolerated
  std::optional<double> confidence = {};       // of all intervals
  std::vector<PageOptimizer> optimizers = {};  // in the order of tables and legends
  std::vector<PageRun> runs = {};
  Published published = {};
  std::vector<PageRouting> routing = {};
  std::vector<Sample> samples = {};
  std::vector<Facts> facts = {};  // machine, corpus, checks of equal start and data
  std::string config = {};
  std::string command = {};  // that makes all this again
};

// Long data are thinned (prism/report/thin.h) before they enter the page. Throws prism::Error that names the place where
// lists differ in length, steps do not ascend, a rate is below 0 or an id is unknown: "report: runs[3].train.loss: …".
std::string html(PageDocument document);
void write(PageDocument document, const std::filesystem::path& file);  // an old page stays until the new one is whole

}  // namespace prism::report
