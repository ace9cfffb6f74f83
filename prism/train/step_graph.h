#pragma once

#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>

namespace prism::train {

// Waits until the device has finished all work. Does nothing on the CPU.
void synchronize(at::Device device);

// Repeats the same work on a device, on tensors that stay at the same address. `prepare` runs on the host every time.
// So does `work`, unless `graph` is true and the device is a GPU: then it is captured the second time and replayed from
// then on, so that code on the host, such as the allocation of memory, no longer runs.
class StepGraph {
 public:
  enum Mark { kBefore, kAfter, kMarks };  // two points in the work

  static std::unique_ptr<StepGraph> make(at::Device device);
  virtual ~StepGraph() = default;

  virtual void run(const std::function<void()>& prepare, const std::function<void()>& work, bool graph) = 0;
  virtual void mark(Mark mark) = 0;                                // records the time; `work` calls it
  virtual void wait() = 0;                                         // until the last run is done
  virtual bool wait_for(std::chrono::duration<double> limit) = 0;  // returns false if it is not done by then
  virtual double milliseconds() const = 0;                         // between the two marks
  virtual bool is_graph() const = 0;
};

// Makes a StepGraph that never captures, for any device.
std::unique_ptr<StepGraph> plain_steps(at::Device device);

}  // namespace prism::train
