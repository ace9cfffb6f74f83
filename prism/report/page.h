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

// One self-contained HTML page for a comparison, a training run or an inspection. It holds the scripts and styles of
// prism/report/assets and, as JSON, a PageDocument with everything it shows. The page computes no statistics; it only
// smooths the training loss as the reader chooses.
//
// The page leaves out what is empty and what depends on it. An unknown or non-finite number is NaN, null in JSON. Times
// are in seconds, or milliseconds in names with _ms, memory is in bytes, a loss is the mean cross-entropy in nats.

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

enum class PageKind { Compare, Train, Inspect };
enum class Tone { Plain, Headline, Caution };  // a page has one headline, in large type
enum class Edge { None, Low, High };           // Low, High: the best rate is the lowest or the highest of its grid
enum class RunStatus {
  Running,
  Finished,
  Interrupted,  // saved; can be resumed
  Diverged,     // stopped by the guard (train.max_skips non-finite steps in a row), or the final loss is not finite
};

constexpr std::array<const char*, 3> words(PageKind) { return {"compare", "train", "inspect"}; }
constexpr std::array<const char*, 3> words(Tone) { return {"plain", "headline", "caution"}; }
constexpr std::array<const char*, 3> words(Edge) { return {"", "low", "high"}; }
constexpr std::array<const char*, 4> words(RunStatus) { return {"running", "finished", "interrupted", "diverged"}; }
constexpr const char* word(RunStatus status) { return words(status)[static_cast<size_t>(status)]; }

struct Sentence {
  std::string text;  // **words** are bold
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
  bool low_open = false, high_open = false;  // the range reaches that end of the grid
};

struct SeedLoss {
  int64_t seed = 0;
  double loss = kUnknown;
};

struct MeanLoss {
  double mean = kUnknown;
  std::optional<double> low = {}, high = {};  // confidence interval
};

struct FinalLoss : MeanLoss {
  std::vector<SeedLoss> seeds = {};
};

struct PageMemory {
  std::optional<int64_t> weights = {}, gradients = {}, optimizer = {}, peak = {};
  std::string of = {};  // whose peak it is: "device" or "host"
};

struct PageOptimizer {
  std::string id, label = {};
  std::string detail = {};           // main settings in a few words
  std::vector<SweepRun> sweep = {};  // the first seed at each rate
  std::optional<double> best_lr = {};
  Edge edge = Edge::None;
  std::optional<ToleratedRates> tolerance = {};
  std::optional<FinalLoss> final = {};                                      // held-out loss at the best rate
  std::optional<MeanLoss> difference = {};                                  // its minus the baseline's, paired by seed
  std::optional<double> tokens_to_baseline = {}, seconds_to_baseline = {};  // until the baseline's loss; NaN: never
  std::optional<double> tokens_speedup = {}, seconds_speedup = {};          // the baseline's number divided by its own
  std::optional<double> step_ms = {}, optimizer_ms = {};  // median step and the optimizer's part of it
  std::optional<PageMemory> memory = {};
};

// Lists of equal length, or empty; steps ascend.
struct LossCurve {
  std::vector<int64_t> step = {}, tokens = {};
  std::vector<double> seconds = {}, loss = {};
  std::vector<double> low = {}, high = {};  // extremes, if a point stands for several steps
  bool empty() const { return step.empty(); }
};

struct NormCurve {
  std::vector<int64_t> step = {};
  std::vector<double> weight = {};  // Frobenius norm over the matrices
  bool empty() const { return step.empty(); }
};

// The spectra of one matrix at one recorded step.
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
  bool best = false;                         // at the optimizer's best rate; shown by default
  std::optional<int64_t> stopped_step = {};  // the last step of a run that stopped early
  std::optional<double> loss = {}, val_loss = {}, seconds = {};
  std::string folder = {};
  LossCurve train = {}, val = {};  // val: held-out loss
  NormCurve norms = {};
  std::vector<Spectrum> spectra = {};
};

struct RoutingRow {
  std::string parameter;
  std::vector<int64_t> shape = {};
  std::string to, rule = {};
};

struct PageRouting {
  std::string optimizer;  // id of the optimizer whose runs have this routing
  std::vector<RoutingRow> rows = {};
};

struct Sample {
  std::string optimizer, prompt, text;  // id of the optimizer; prompt and generated text
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
  std::string paper_label = {}, here_label = {};  // of the numbers of each side
  std::vector<PublishedValue> values = {};
  bool empty() const { return values.empty(); }
};

struct PageDocument {
  PageKind kind = PageKind::Train;
  std::string title = {};
  std::string program = {}, created = {};      // name and version, date and time; `write` sets them if empty
  std::vector<Sentence> summary = {};          // shown first, in this order
  std::vector<Highlight> highlights = {};      // at most four numbers in large type
  std::string baseline = {};                   // id of the optimizer that the others are compared with
  std::optional<double> tolerance = {};        // a rate is tolerated if its loss is within this of the best
  std::optional<double> confidence = {};       // level of all intervals
  std::vector<PageOptimizer> optimizers = {};  // in the order of tables and legends
  std::vector<PageRun> runs = {};
  Published published = {};
  std::vector<PageRouting> routing = {};
  std::vector<Sample> samples = {};
  std::vector<Facts> facts = {};  // machine, corpus, checks of equal start and data
  std::string config = {};
  std::string command = {};  // the command that produces the page
};

// Returns the page, with long lists thinned (prism/report/thin.h). If lists differ in length, steps do not ascend, a
// rate is negative or an id is unknown, throws prism::Error that names the place: "report: runs[3].train.loss: …".
std::string html(PageDocument document);

// Writes the page. An existing file is replaced only once the new page is complete.
void write(PageDocument document, const std::filesystem::path& file);

}  // namespace prism::report
