#include "prism/train/step_graph.h"

namespace prism::train {

std::unique_ptr<StepGraph> StepGraph::make(at::Device device) { return plain_steps(device); }

}  // namespace prism::train
