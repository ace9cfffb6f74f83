#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/inspect_screen.h"
#include "prism/cli/options.h"
#include "prism/io/error.h"
#include "prism/io/manifest.h"
#include "prism/train/inspection.h"
#include "prism/train/run_page.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;

struct InspectOptions {
  std::string path, matrix, page;
  std::vector<std::string> data;
  bool watch = false;
};

RunView view_of(const train::RunFolder& folder) { return {folder.path.string(), folder.metrics(), folder.spectra()}; }

// Redraws the screen every two seconds until the run has ended.
int watch(const train::RunFolder& folder, const InspectOptions& options) {
  const Interrupt interrupt;
  const auto terminal = terminal_of(stdout);
  while (interrupt.signal() == 0) {
    const bool ended = fs::exists(folder.summary_file());
    const auto screen = screen_of(view_of(folder), options.matrix, terminal);
    if (terminal.live) fmt::print("\033[H\033[2J");
    fmt::print("{}", screen);
    std::fflush(stdout);
    if (ended) return 0;
    for (int i = 0; i < 20 && interrupt.signal() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return 0;  // Ctrl-C closes the view, which is not a failure
}

int inspect_run(const train::RunFolder& folder, const InspectOptions& options) {
  if (!options.data.empty())
    throw Error("--data: expected a checkpoint folder (RUN/checkpoints/step-…), got a run folder");
  if (options.watch && !options.page.empty()) throw Error("--page: cannot be combined with --watch");
  if (options.watch) return watch(folder, options);
  auto view = view_of(folder);
  fmt::print("{}", screen_of(view, options.matrix, terminal_of(stdout)));
  if (!options.page.empty()) {
    if (!fs::exists(folder.summary_file()))
      throw Error(fmt::format(
          "--page: expected a finished run, but {} has no summary.json; it is still running or was killed", view.path));
    auto document = train::page_document(folder, {folder.summary(), std::move(view.metrics), std::move(view.spectra)});
    document.kind = report::PageKind::Inspect;
    report::write(std::move(document), options.page);
    fmt::print("\n{}\n", options.page);
  }
  return 0;
}

int inspect_checkpoint(const fs::path& folder, const InspectOptions& options) {
  if (options.watch) throw Error("--watch: expected a run folder, got a checkpoint folder");
  const auto step = io::verify_manifest(folder).step;
  const auto run = fs::absolute(folder).lexically_normal().parent_path().parent_path();
  const auto matrices = train::checkpoint_spectra(folder);
  std::vector<train::SpectraLine> spectra;
  if (!options.data.empty()) spectra = train::batch_spectra({run}, folder, options.data);
  const CheckpointView view{folder.string(), step, matrices, spectra};
  fmt::print("{}", screen_of(view, options.matrix, terminal_of(stdout)));
  if (!options.page.empty()) {
    report::write(checkpoint_document(view), options.page);
    fmt::print("\n{}\n", options.page);
  }
  return 0;
}

int inspect(const InspectOptions& options) {
  const fs::path folder = options.path;
  if (!options.page.empty()) check_writable(options.page);
  if (const train::RunFolder run{folder}; fs::exists(run.metrics_file())) return inspect_run(run, options);
  if (fs::exists(folder / io::kManifestName)) return inspect_checkpoint(folder, options);
  throw Error(fmt::format(
      "{}: expected a run folder (with metrics.jsonl) or a checkpoint folder (with manifest.json), got neither",
      options.path));
}

void add_options(CLI::App& app, InspectOptions& options) {
  app.add_option("path", options.path, "A run folder or a checkpoint folder")->required()->type_name("FOLDER");
  app.add_option("--matrix", options.matrix, "Show one matrix in full; part of its name is enough")->type_name("NAME");
  app.add_option("--data", options.data,
                 "For a checkpoint: compute SNR and gain with the\ngradient of this text's first batch")
      ->type_name("PATH")
      ->allow_extra_args(false);
  app.add_option("--page", options.page, "Also write an HTML page")->type_name("FILE.html");
  app.add_flag("--watch", options.watch, "Follow a run until it ends");
}

}  // namespace

Command inspect_command() {
  return make_command(
      "inspect", "Show spectra, SNR, gains and norms of every matrix",
      "prism inspect runs/a\nprism inspect runs/a --watch\nprism inspect runs/a/checkpoints/step-00001000 "
      "--data text.txt --page i.html",
      add_options, inspect);
}

}  // namespace prism::cli
