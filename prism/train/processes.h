#pragma once

#include "prism/dist/gradient_sum.h"
#include "prism/io/config.h"
#include "prism/optim/mixed.h"
#include "prism/train/run_data.h"

// The parts of a configuration that concern a run on several processes.

namespace prism::train {

// Cuts a step into micro-batches: `train.accumulate` of them, or the next multiple of the number of processes. Throws
// prism::Error if that does not divide `train.batch`, or if an exact sum would depend on the number of processes.
dist::MicroBatches micro_batches(const io::Config& config, const dist::Communicator& processes);

// Gives each process a GPU of its own where run.device leaves the choice: the launcher's number of the process on its
// machine.
void choose_device(const dist::Communicator& processes, io::Config& config);

// Throws on all processes if their configurations differ in more than run.device and run.threads.
void expect_equal_configs(dist::Communicator& processes, const io::Config& config);

// The cost of stepping a parameter, by which owners are chosen: that of shaping it if the rule takes matrices.
double ownership_cost(const Options& rule, at::IntArrayRef shape);

// Returns true for each parameter that is stepped element by element, as embeddings, norms and biases are. Hidden
// matrices count as whole even if an elementwise rule steps them: their norms are measured.
std::vector<bool> are_elementwise(const Routing& routing);

// The routing of a model's parameters.
Routing routing_of(const io::Config& config, const std::vector<std::pair<std::string, Tensor>>& parameters);

// Returns the parts that each process steps. A hidden matrix has one owner: the most expensive first, each to the process
// with the least work so far. A parameter that is stepped element by element is cut into ranges, one for each process
// (dist::cut); one that is too small for that has an owner. None in one process and with `run.owned` = false.
std::vector<dist::Part> parts(const io::Config& config, const std::vector<std::pair<std::string, Tensor>>& parameters,
                              const dist::Communicator& processes);

// The parameters in the order in which Mixed steps them: the elementwise ones, then the matrices, equal shapes together.
std::vector<size_t> order_of_stepping(const Routing& routing);

// Puts the state of an optimizer together on rank 0, where each process steps some `parts` of the parameters, in the
// order that one process would save it in. All processes call it; the others get their own part.
Snapshot gathered_state(dist::Communicator& processes, const Mixed& optimizer, const std::vector<dist::Part>& parts);

// The part of a whole state that this process steps.
Snapshot part_of_state(const dist::Communicator& processes, Snapshot whole, const Mixed& optimizer,
                       const std::vector<dist::Part>& parts);

// Puts the lines of all processes together on rank 0, in the order that one process would write them in.
std::vector<SpectraLine> gathered_lines(dist::Communicator& processes, const Mixed& optimizer,
                                        const std::vector<SpectraLine>& lines);

}  // namespace prism::train
