#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/compare/plan.h"
#include "prism/reproduce/measures.h"

namespace prism::reproduce {

struct Row;

// One side of a comparison: a contender at a rate (its best where none is given), times a factor, plus an offset; or a
// plain number, the offset alone.
struct Operand {
  std::optional<size_t> contender;
  std::optional<double> lr;
  double factor = 1, offset = 0;
};

// A statement of the paper, and the inequality that decides it. An experiment's file writes it as
//   "PRISM beats Muon for γ of 1 and 2 | loss prism-1 prism-2 < muon"
//   "the norm falls with γ | W muon > prism-1 > prism-2"
//   "PRISM stays good at 0.1 | loss prism-2@0.1 < prism-2@0.02+0.05"
//   "γ needs no tuning | spread loss prism-1 prism-2 < 0.02"
// A measure, then groups of operands with < or > between them: all members of a group are compared with all of the
// next. `spread` compares the largest minus the smallest of its one group with a number.
struct Claim {
  std::string text;
  const Measure* measure = nullptr;
  bool spread = false;
  std::vector<std::vector<Operand>> groups;
  std::vector<char> relations;  // '<' or '>', one between each two groups
};

// Throws prism::Error that names the claim and what was expected.
Claim parse_claim(const std::string& text, const compare::Plan& plan);

enum class Judgment { Confirmed, Refuted, Open };
struct Verdict {
  Judgment judgment = Judgment::Open;
  std::string sentence;  // "Confirmed: … (PRISM γ 1 3.6929 < Muon 4.4345)"
};

// By the rows of the experiment's table; open where a run is missing.
Verdict judge(const Claim& claim, const compare::Plan& plan, const std::vector<Row>& rows);

}  // namespace prism::reproduce
