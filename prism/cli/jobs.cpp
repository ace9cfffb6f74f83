#include "prism/cli/jobs.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <memory>
#include <thread>

#include "prism/cli/child_process.h"
#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A temporary folder, removed by the destructor.
class ScratchFolder {
 public:
  ScratchFolder() {
    auto name = (fs::temp_directory_path() / "prism-jobs-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) io::throw_system_error("make", name, errno);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Returns every key that was given, with its origin, which the child process needs for its messages.
json settings_of(const io::Config& config) {
  json settings = json::array();
  for (const auto& key : config.table().keys()) {
    const auto& name = key.name();
    if (config.is_given(name) && !name.starts_with("compare."))
      settings.push_back({name, config.value(name), config.origin(name)});
  }
  return settings;
}

// Returns the GPUs that the runs take in turn, as CUDA_VISIBLE_DEVICES names them. Empty if the configuration names a
// device or there is no GPU.
std::vector<std::string> gpus(const io::Config& config) {
  const auto device = config.string("run.device");
  if ((device != "auto" && device != "cuda") || !at::Context::hasCUDA()) return {};
  const auto count = static_cast<size_t>(at::detail::getCUDAHooks().getNumGPUs());
  std::vector<std::string> names;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) names = io::split(visible, ',');
  for (size_t i = names.size(); i < count; ++i) names.push_back(std::to_string(i));
  names.resize(count);
  return names;
}

std::vector<std::string> environment_for(const std::string& gpu) {
  if (gpu.empty()) return {};
  return {"CUDA_VISIBLE_DEVICES=" + gpu};
}

// The process of one run.
class Process {
 public:
  Process(const fs::path& file, const fs::path& errors, const std::string& gpu)
      : errors_(errors),
        error_file_(errors, O_WRONLY | O_CREAT | O_TRUNC),
        child_({"train", "--job", file.string()},
               {.environment = environment_for(gpu), .errors = error_file_.get(), .seconds = 0}) {}

  int output() const { return child_.output(); }
  void stop() const { child_.stop(); }

  // Waits for output and calls `line` for each complete line. Returns false at the end.
  template <typename Line>
  bool read(const Line& line) {
    if (!child_.read(text_)) return false;
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      line(io::parse_json(text_.substr(0, end), "a run"));
    return true;
  }

  int wait() {  // returns the exit status, or 128 + the signal that ended it
    const auto [status, signal] = child_.wait();
    return signal != 0 ? 128 + signal : status;
  }

  std::string message() const {  // returns the last line of its standard error
    auto text = io::read_file(errors_);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const auto begin = text.rfind('\n');
    text = begin == std::string::npos ? text : text.substr(begin + 1);
    return text.starts_with("prism train: ") ? text.substr(13) : text;
  }

 private:
  fs::path errors_;
  io::FileDescriptor error_file_;
  ChildProcess child_;
  std::string text_;  // output after the last complete line
};

struct Running {
  size_t job;
  size_t slot;
  std::unique_ptr<Process> process;
  double fraction = 0;  // of its steps
};

class Jobs {
 public:
  Jobs(const std::vector<Job>& jobs, const train::Dataset& dataset, const JobsOptions& options)
      : jobs_(jobs), options_(options), gpus_(gpus(jobs.front().config)) {
    dataset.tokenizer.save(scratch_.path() / "tokenizer.json");
    for (size_t i = 0; i < static_cast<size_t>(options.at_a_time); ++i) slots_.push_back(i);
  }

  bool operator()() {
    while (next_ < jobs_.size() || !running_.empty()) {
      while (!stopped_ && next_ < jobs_.size() && !slots_.empty()) begin();
      if (!stopped_ && should_stop()) stop();
      if (stopped_ && running_.empty()) break;
      listen();
      report();
    }
    return !stopped_;
  }

 private:
  bool should_stop() const {
    return (options_.stop != nullptr && *options_.stop != 0) || (options_.out_of_time && options_.out_of_time());
  }

  void stop() {
    stopped_ = true;
    for (const auto& running : running_) running.process->stop();
  }

  void begin() {
    const auto& job = jobs_[next_];
    const auto file = scratch_.path() / fmt::format("{}.json", next_);
    const json object = {{"settings", settings_of(job.config)},
                         {"tokenizer", (scratch_.path() / "tokenizer.json").string()},
                         {"data", fs::absolute(options_.data).string()}};
    io::write_file_atomically(file, object.dump());
    const auto slot = slots_.front();
    slots_.pop_front();
    const auto gpu = gpus_.size() > 1 ? gpus_[slot % gpus_.size()] : "";
    running_.push_back({next_, slot, std::make_unique<Process>(file, fs::path(file).replace_extension("err"), gpu)});
    ++next_;
  }

  void listen() {
    std::vector<pollfd> files;
    for (const auto& running : running_) files.push_back({running.process->output(), POLLIN, 0});
    if (::poll(files.data(), files.size(), /*ms=*/100) <= 0) return;
    for (size_t i = files.size(); i-- > 0;) {
      if (files[i].revents == 0) continue;
      auto& running = running_[i];
      if (!running.process->read([&](const json& line) { take(running, line); })) end(i);
    }
  }

  void take(Running& running, const json& line) {
    const auto& name = jobs_[running.job].name;
    if (line.contains("note")) options_.line->note(name + ": " + line.at("note").get<std::string>());
    if (!line.contains("step")) return;
    running.fraction = line.at("step").get<double>() / line.at("steps").get<double>();
    last_ =
        fmt::format("{}  step {}/{}  loss {:.3f}", name, line.at("step").get<int64_t>(),
                    line.at("steps").get<int64_t>(), line.at("loss").is_number() ? line.at("loss").get<double>() : NAN);
  }

  void end(size_t index) {
    auto running = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    slots_.push_back(running.slot);
    const int status = running.process->wait();
    if (status == 0) {
      ++done_;
      return;
    }
    if (stopped_ && status > 128) return;  // it was saved
    const auto message = fmt::format("{}: {}", jobs_[running.job].name, running.process->message());
    if (status == kWrongInput) throw Error(message);
    throw std::runtime_error(
        status > 128 ? fmt::format("{}: killed by signal {}", jobs_[running.job].name, status - 128) : message);
  }

  void report() {
    if (!options_.line->due()) return;
    double done = static_cast<double>(done_);
    for (const auto& running : running_) done += running.fraction;
    const auto left = pace_.seconds_left(done, static_cast<double>(jobs_.size()));
    options_.line->update(fmt::format("{} of {} done, {} at a time  ETA {}  {}", done_,
                                      io::counted(static_cast<int64_t>(jobs_.size()), "run"), running_.size(),
                                      in_time(left), last_));
  }

  const std::vector<Job>& jobs_;
  const JobsOptions& options_;
  std::vector<std::string> gpus_;
  ScratchFolder scratch_;
  std::deque<size_t> slots_;  // free ones
  std::vector<Running> running_;
  size_t next_ = 0, done_ = 0;
  bool stopped_ = false;
  std::string last_;
  Pace pace_;
};

}  // namespace

bool run_jobs(const std::vector<Job>& jobs, const train::Dataset& dataset, const JobsOptions& options) {
  return jobs.empty() || Jobs(jobs, dataset, options)();
}

int run_job(const fs::path& file) {
  const auto object = io::parse_json(io::read_file(file), file.string());
  auto config = train::make_config();
  for (const auto& setting : object.at("settings"))
    config.assign(setting.at(0).get<std::string>(), setting.at(1), setting.at(2).get<std::string>());
  const auto tokenizer =
      text::Tokenizer::load(object.at("tokenizer").get<std::string>()).with_end_of_text(config.string("data.eos"));
  const auto dataset = train::open_prepared(config, tokenizer, object.at("data").get<std::string>());
  const Interrupt interrupt;
  const auto tell = [](const json& line) {
    say(stdout, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  };
  train::RunOptions run;
  run.resume = true;
  run.stop = &interrupt.signal();
  run.note = [&](const std::string& text) { tell({{"note", text}}); };
  run.progress = [&, last = std::chrono::steady_clock::time_point()](const train::RunProgress& p) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(200)) return;
    last = now;
    tell({{"step", p.step}, {"steps", p.steps}, {"loss", p.loss}});
  };
  const auto result = train::run(config, dataset, run);
  if (result.status == train::RunStatus::Interrupted) return 128 + interrupt.signal();
  if (result.status == train::RunStatus::Diverged) tell({{"note", "diverged; " + result.diagnosis}});
  return 0;
}

std::string jobs_warning(const io::Config& config, int64_t at_a_time) {
  if (!train::device_of(config.string("run.device")).is_cpu()) return "";
  const auto given = config.integer("run.threads");
  const int64_t threads = given > 0 ? given : at::get_num_threads(), cores = std::thread::hardware_concurrency();
  if (threads * at_a_time <= cores) return "";
  return fmt::format(
      "{} runs at a time with {} each, but only {}; run.threads = {} is faster (results differ in the last digits)",
      at_a_time, io::counted(threads, "thread"), io::counted(cores, "core"), std::max<int64_t>(1, cores / at_a_time));
}

}  // namespace prism::cli
