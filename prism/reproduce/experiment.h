#pragma once

#include <span>
#include <string>
#include <vector>

#include "prism/compare/plan.h"
#include "prism/io/embedded_file.h"
#include "prism/reproduce/claims.h"

namespace prism::reproduce {

// A question, and the comparison whose runs answer it. Its configuration is experiments/paper.toml, over it the scale
// (experiments/scales/), over that the experiment's own file, over that what the user set.
struct Experiment {
  std::string name;      // "table1", "tolerance/124m"
  std::string title;     // for people
  std::string question;  // what it asks
  compare::Plan plan;
  std::vector<Claim> claims = {};            // what the paper says
  std::vector<const Measure*> columns = {};  // what its table shows besides losses
  const Measure* paper_measure = nullptr;    // the measure that the paper's numbers are of
  std::string paper_label = {};              // what the paper's numbers are
};

// What the user chose besides the name.
struct Choices {
  std::string scale;
  std::vector<std::string> data;      // paths of text or shards; empty: no run can be made, only read from a pool
  std::vector<std::string> held_out;  // paths of held-out text; empty: a part of the text is held out
  std::string tokenizer;              // empty: one is trained
  std::string device = "auto";
  std::vector<std::string> settings;  // section.key=value
};

std::vector<std::string> experiment_names();  // the most important first
std::vector<std::string> scale_names();       // the smallest first

// For each name in turn: the experiment of that name, those in the folder of that name ("tolerance"), or "all" that the
// scale has. One that several names mean comes once.
std::vector<Experiment> make_experiments(const std::vector<std::string>& names, const Choices& choices);

// Tokens a second that a machine of the kind the scale was made for trains at, until runs in the pool say better.
double nominal_tokens_per_s(const Experiment& experiment);

std::span<const io::EmbeddedFile> experiment_files();  // experiments/

}  // namespace prism::reproduce
