#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/compare/plan.h"
#include "prism/reproduce/measures.h"

namespace prism::reproduce {

struct Row;

// One value of a claim: the measure of a contender at one rate (by default its best), times `factor`, plus `offset`.
// Without a contender, the number `offset`.
struct Operand {
  std::optional<size_t> contender;
  std::optional<double> lr;
  double factor = 1, offset = 0;
};

// A statement of the paper and the inequality that decides it, written in the file of an experiment as
//   "PRISM beats Muon for γ of 1 and 2 | loss prism-1 prism-2 < muon"
//   "the norm falls with γ | W muon > prism-1 > prism-2"
//   "PRISM stays good at 0.1 | loss prism-2@0.1 < prism-2@0.02+0.05"
//   "γ needs no tuning | spread loss prism-1 prism-2 < 0.02"
// The inequality is a measure and groups of operands with < or > between them. Each operand of a group is compared with
// each of the next group. `spread` compares the largest minus the smallest value of one group with a number.
struct Claim {
  std::string text;
  const Measure* measure = nullptr;
  bool spread = false;
  std::vector<std::vector<Operand>> groups;
  std::vector<char> relations;  // '<' or '>' between neighboring groups
};

std::optional<double> as_number(const std::string& text);  // nothing if the text is not a number

// Parses a claim. Throws prism::Error that quotes the claim and says what was expected.
Claim parse_claim(const std::string& text, const compare::Plan& plan);

enum class Judgment { Confirmed, Refuted, Open };
struct Verdict {
  Judgment judgment = Judgment::Open;
  std::string sentence;  // "Confirmed: … (PRISM γ 1 3.6929 < Muon 4.4345)"
};

// Decides a claim by the rows of the experiment's table. The claim is open if a run is missing.
Verdict judge(const Claim& claim, const compare::Plan& plan, const std::vector<Row>& rows);

}  // namespace prism::reproduce
