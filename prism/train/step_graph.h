#pragma once

#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <memory>

namespace prism::train {

void synchronize(at::Device device);  // waits until the device has done everything; nothing on the CPU

// The same work on a device, again and again, on tensors that stay where they are. `prepare` runs every time; `work`
// runs the first time, and where a graph is wanted and there is CUDA it is captured the second time and replayed from
// then on: what it does on the host, such as the choice of memory, happens only then.
class StepGraph {
 public:
  enum Mark { kBefore, kAfter, kMarks };  // two places in the work

  static std::unique_ptr<StepGraph> make(at::Device device);
  virtual ~StepGraph() = default;

  virtual void run(const std::function<void()>& prepare, const std::function<void()>& work, bool graph) = 0;
  virtual void mark(Mark mark) = 0;         // called by `work`: takes the time
  virtual void wait() = 0;                  // for what was run
  virtual double milliseconds() const = 0;  // between the two marks
  virtual bool is_graph() const = 0;
};

// Without graphs, for any device.
std::unique_ptr<StepGraph> plain_steps(at::Device device);

}  // namespace prism::train
