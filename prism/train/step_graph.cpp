#include "prism/train/step_graph.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace prism::train {
namespace {

class PlainSteps : public StepGraph {
 public:
  explicit PlainSteps(at::Device device) : device_(device) {}

  void run(const std::function<void()>& prepare, const std::function<void()>& work, bool /*graph*/) override {
    prepare();
    work();
  }

  void mark(Mark mark) override {
    wait();
    marks_[mark] = Clock::now();
  }

  void wait() override { synchronize(device_); }

  bool wait_for(std::chrono::duration<double> /*limit*/) override {
    wait();
    return true;
  }

  double milliseconds() const override {
    return std::chrono::duration<double, std::milli>(marks_[kAfter] - marks_[kBefore]).count();
  }

  bool is_graph() const override { return false; }

 private:
  using Clock = std::chrono::steady_clock;
  at::Device device_;
  std::array<Clock::time_point, kMarks> marks_;
};

}  // namespace

void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.has_index() ? device.index() : 0);
}

std::unique_ptr<StepGraph> plain_steps(at::Device device) { return std::make_unique<PlainSteps>(device); }

}  // namespace prism::train
