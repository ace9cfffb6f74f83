#pragma once

#include <string>
#include <vector>

#include "prism/io/config.h"
#include "prism/train/estimate.h"

namespace prism::cli {

// What opens a run, after the lines about its data: model, device, rates, steps, and what it will need. `config` is
// complete; `runs` such runs are to be made.
std::vector<std::string> run_header(const io::Config& config, const train::DatasetSize& data,
                                    const train::Estimate& estimate, size_t runs = 1);

// What the user should consider before it starts: days of training, more memory than there is.
std::vector<std::string> run_warnings(const io::Config& config, const train::Estimate& estimate, size_t runs = 1);

// The complete configuration as TOML, each value with a comment that says where it came from: `given` is the same
// configuration before it was completed.
std::string annotated_toml(const io::Config& complete, const io::Config& given);

}  // namespace prism::cli
