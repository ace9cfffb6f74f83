#include "prism/bench/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "prism/train/step_graph.h"

namespace prism::bench {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

constexpr double kNsPerMs = 1e6;
constexpr const char* kSilent = "6";  // above every level of the profiler's messages

// "void at::native::reduce_kernel<512, 1>(…)" → "at::native::reduce_kernel<512, 1>"
std::string short_name(std::string name) {
  for (const std::string part : {"void ", "(anonymous namespace)::"}) {
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  }
  return name.substr(0, name.find('('));
}

}  // namespace

std::vector<Span> profile(at::Device device, const std::function<void()>& work) {
  train::synchronize(device);
  setenv("KINETO_LOG_LEVEL", kSilent, /*overwrite=*/0);
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities{device.is_cpu() ? ActivityType::CPU : ActivityType::CUDA};
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  try {
    work();
    train::synchronize(device);
  } catch (...) {
    kineto::disableProfiler();
    throw;
  }
  const auto result = kineto::disableProfiler();
  std::vector<Span> spans;
  for (const auto& event : result->events()) {
    if (event.deviceType() != device.type()) continue;
    spans.push_back(
        {short_name(event.name()), event.startNs(), event.startNs() + event.durationNs(), event.startThreadId()});
  }
  std::ranges::stable_sort(spans, {}, &Span::begin_ns);
  return spans;
}

std::vector<double> kernel_ms(const std::vector<Span>& spans) {
  std::vector<double> times;
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto end = i + 1 < spans.size() ? std::min(spans[i].end_ns, spans[i + 1].begin_ns) : spans[i].end_ns;
    times.push_back(static_cast<double>(end - spans[i].begin_ns) / kNsPerMs);
  }
  return times;
}

std::vector<double> operator_ms(const std::vector<Span>& spans) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) {  // callers before the operators they call
    return std::tuple(spans[i].thread, spans[i].begin_ns, ~spans[i].end_ns);
  });
  std::vector<double> times(spans.size());
  std::vector<size_t> open;
  for (const size_t i : order) {
    const auto& span = spans[i];
    while (!open.empty() && (spans[open.back()].thread != span.thread || spans[open.back()].end_ns <= span.begin_ns))
      open.pop_back();
    times[i] = static_cast<double>(span.duration()) / kNsPerMs;
    if (!open.empty()) times[open.back()] -= times[i];
    open.push_back(i);
  }
  return times;
}

Profile summarize(at::Device device, const std::vector<Span>& spans) {
  Profile result;
  if (spans.empty()) return result;
  const auto times = device.is_cpu() ? operator_ms(spans) : kernel_ms(spans);
  std::map<std::string, ProfileLine> by_name;
  uint64_t end = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    auto& line = by_name[spans[i].name];
    line.name = spans[i].name;
    line.calls += 1;
    line.ms += times[i];
    end = std::max(end, spans[i].end_ns);
  }
  for (auto& [name, line] : by_name) result.lines.push_back(std::move(line));
  std::ranges::stable_sort(result.lines, std::greater{}, &ProfileLine::ms);
  result.total_ms = static_cast<double>(end - spans.front().begin_ns) / kNsPerMs;
  result.idle_ms = std::max(0.0, result.total_ms - std::accumulate(times.begin(), times.end(), 0.0));
  return result;
}

}  // namespace prism::bench
