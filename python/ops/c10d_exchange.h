#pragma once

#include <memory>
#include <string>

#include "prism/optim/exchange.h"

namespace prism {

// The exchange over a process group of torch.distributed, by the group's name.
std::shared_ptr<Exchange> c10d_exchange(const std::string& group);

}  // namespace prism
