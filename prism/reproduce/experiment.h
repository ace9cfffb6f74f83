#pragma once

#include <span>
#include <string>
#include <vector>

#include "prism/compare/plan.h"
#include "prism/io/embedded_file.h"
#include "prism/reproduce/claims.h"

namespace prism::reproduce {

// A question and the comparison whose runs answer it. Its configuration is read from experiments/paper.toml, the scale
// (experiments/scales/), the experiment's own file and the user's settings; each overrides those before it.
struct Experiment {
  std::string name;  // "table1", "tolerance/124m"
  std::string title, question;
  compare::Plan plan;
  std::vector<Claim> claims = {};            // of the paper
  std::vector<const Measure*> columns = {};  // of its table, besides losses
  const Measure* paper_measure = nullptr;    // the measure that the paper's numbers are of
  std::string paper_label = {};              // of the paper's numbers
};

// The user's choices besides the experiments.
struct Choices {
  std::string scale;
  std::vector<std::string> data;      // paths of text or shards; empty: runs are only read from the pool
  std::vector<std::string> held_out;  // paths of held-out text; empty: hold out part of the text
  std::string tokenizer;              // empty: train one
  std::string device = "auto";
  std::vector<std::string> settings;  // section.key=value
};

std::vector<std::string> experiment_names();  // the most important first
std::vector<std::string> scale_names();       // the smallest first

// Returns the experiments that the names select, in the order of the names and each once. A name selects an experiment,
// a folder of them ("tolerance") or, as "all", all experiments of the scale.
std::vector<Experiment> make_experiments(const std::vector<std::string>& names, const Choices& choices);

// Returns the training speed on the machine that the scale is meant for. It is used until the pool has measured speeds.
double nominal_tokens_per_s(const Experiment& experiment);

std::span<const io::EmbeddedFile> experiment_files();  // the files of experiments/, embedded

}  // namespace prism::reproduce
