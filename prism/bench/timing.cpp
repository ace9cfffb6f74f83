#include "prism/bench/timing.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <chrono>

#include "prism/cuda/device.h"
#include "prism/cuda/steps.h"
#include "prism/io/spelling.h"
#include "prism/train/machine.h"
#include "prism/train/step_graph.h"

namespace prism::bench {
namespace {

using Clock = std::chrono::steady_clock;

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

std::vector<double> time_on_host(int64_t repeats, const std::function<void()>& call) {
  std::vector<double> times;
  for (int64_t i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return times;
}

}  // namespace

std::string device_name(at::Device device) {
  if (device.is_cpu())
    return fmt::format("{}, {}", train::machine(device).cpu, io::counted(at::get_num_threads(), "thread"));
  const auto name = cuda::device_name(device.index());
  return name.empty() ? device.str() : name;
}

OwnStream::OwnStream(at::Device device) {
  if (device.is_cpu()) return;
  train::synchronize(device);
  guard_.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
}

std::vector<double> time_calls(at::Device device, int64_t repeats, const std::function<void()>& call) {
  if (device.is_cpu()) return time_on_host(repeats, call);
  const auto stream = current_stream(device);
  std::vector<c10::Event> begin, end;
  for (int64_t i = 0; i < repeats; ++i) {
    for (auto* events : {&begin, &end}) events->emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.back().record(stream);
    call();
    end.back().record(stream);
  }
  train::synchronize(device);
  std::vector<double> times;
  for (size_t i = 0; i < begin.size(); ++i) times.push_back(begin[i].elapsedTime(end[i]));
  return times;
}

bool has_graphs(at::Device device) { return device.is_cuda() && cuda::available(device.index()); }

std::vector<double> time_graph(at::Device device, int64_t repeats, const std::function<void()>& call) {
  const cuda::Graph graph(current_stream(device).native_handle(), call);
  graph.launch();
  return time_calls(device, repeats, [&] { graph.launch(); });
}

int64_t allocated_bytes(at::Device device) {
  constexpr auto kAll = static_cast<size_t>(at::CachingDeviceAllocator::StatType::AGGREGATE);
  return at::accelerator::getDeviceStats(device.index()).allocated_bytes[kAll].current;
}

void release_cache(at::Device device) {
  if (!device.is_cpu()) at::accelerator::emptyCache();
}

}  // namespace prism::bench
