#include "prism/bench/kernels.h"

#include <algorithm>

#include "prism/bench/timing.h"
#include "prism/optim/registry.h"

namespace prism::bench {
namespace {

using Kind = Kernel::Kind;

constexpr const char* kNorms = "squares";  // the kernel between Gram matrices and iteration

bool is_product(const std::string& name) {
  return name.find("product_kernel") != std::string::npos || name.find("portable_kernel") != std::string::npos;
}

// The products of a chunk, and how many of them precede the norms, if the norms have kernels of their own.
struct ChunkProducts {
  std::vector<size_t> launches;
  std::optional<size_t> before_norms = std::nullopt;
};

// Returns the kernel of each product of a chunk.
std::vector<std::optional<size_t>> match_products(const ChunkProducts& products, const std::vector<Kernel>& kernels) {
  size_t iteration = 0, others = 0;
  for (const auto& kernel : kernels) {
    if (kernel.kind == Kind::Iteration) ++iteration;
    if (kernel.kind == Kind::Mean || kernel.kind == Kind::Gram || kernel.kind == Kind::Update) ++others;
  }
  const size_t count = products.launches.size();
  const std::vector<std::optional<size_t>> none(count);
  if (others == 0 || count < iteration + others) return none;
  // The launches of each product of the iteration, and of each other product.
  size_t of_iteration = 1, of_others = (count - iteration) / others;
  if (products.before_norms && iteration > 0) {
    of_others = *products.before_norms / (others - 1);
    if (count < others * of_others) return none;
    of_iteration = (count - others * of_others) / iteration;
    if (*products.before_norms != (others - 1) * of_others) return none;
  }
  if (count != iteration * of_iteration + others * of_others) return none;
  std::vector<std::optional<size_t>> result;
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (kernels[k].kind == Kind::Elementwise || kernels[k].kind == Kind::Sequence) continue;
    result.insert(result.end(), kernels[k].kind == Kind::Iteration ? of_iteration : of_others, k);
  }
  return result;
}

bool is_sequence(const std::string& name) { return name.find("sequence_kernel") != std::string::npos; }

std::optional<size_t> match_by_name(const std::string& name, const std::vector<Kernel>& kernels) {
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (kernels[k].kind == Kind::Sequence && is_sequence(name)) return k;
    if (kernels[k].kind == Kind::Elementwise && name.find(kernels[k].label + "_kernel") != std::string::npos) return k;
  }
  return std::nullopt;
}

}  // namespace

KernelTime::Bound KernelTime::bound(const Peak& peak) const {
  if (std::max(peak.tensor_ms(work), peak.memory_ms(work)) == 0) return Bound::Launch;
  return peak.tensor_ms(work) > peak.memory_ms(work) ? Bound::Tensor : Bound::Memory;
}

double KernelTime::share_of_bound(const Peak& peak) const {
  return std::max(peak.tensor_ms(work), peak.memory_ms(work)) / ms;
}

const char* name_of(KernelTime::Bound bound) {
  if (bound == KernelTime::Bound::Tensor) return "tensor";
  return bound == KernelTime::Bound::Memory ? "memory" : "launch";
}

std::vector<Kernel> as_launched(const std::vector<Kernel>& kernels, const std::vector<std::string>& names) {
  if (std::ranges::none_of(names, is_sequence)) return kernels;
  std::vector<Kernel> result;
  Kernel* sequence = nullptr;
  for (const auto& kernel : kernels) {
    if (kernel.kind != Kind::Iteration) {
      result.push_back(kernel);
      sequence = nullptr;
      continue;
    }
    if (sequence == nullptr) sequence = &result.emplace_back(Kernel{"iteration", Kind::Sequence, {}});
    sequence->work.flop += kernel.work.flop;
    sequence->work.bytes += kernel.work.bytes;
  }
  return result;
}

std::vector<std::optional<size_t>> match_launches(const std::vector<std::string>& names,
                                                  const std::vector<Kernel>& kernels) {
  std::vector<std::optional<size_t>> result(names.size());
  ChunkProducts products;  // of the current chunk
  const auto end_chunk = [&] {
    const auto matches = match_products(products, kernels);
    for (size_t i = 0; i < matches.size(); ++i) result[products.launches[i]] = matches[i];
    products = {};
  };
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_product(names[i])) {
      products.launches.push_back(i);
      continue;
    }
    result[i] = match_by_name(names[i], kernels);
    if (result[i] == 0U) end_chunk();  // the next chunk begins
    if (result[i] && kernels[*result[i]].label == kNorms) products.before_norms = products.launches.size();
  }
  end_chunk();
  return result;
}

Roofline roofline(const std::vector<Span>& spans, const std::vector<Kernel>& kernels) {
  std::vector<std::string> names;
  for (const auto& span : spans) names.push_back(span.name);
  const auto matches = match_launches(names, kernels);
  const auto times = kernel_ms(spans);
  std::vector<KernelTime> rows;
  for (const auto& kernel : kernels) rows.push_back({kernel.label, 0, 0, kernel.work});
  for (size_t i = 0; i < spans.size(); ++i) {
    auto row = matches[i] ? rows.begin() + static_cast<std::ptrdiff_t>(*matches[i])
                          : std::ranges::find(rows, spans[i].name, &KernelTime::label);
    if (row == rows.end()) row = rows.insert(rows.end(), {spans[i].name, 0, 0, {}});
    row->launches += 1;
    row->ms += times[i];
  }
  std::erase_if(rows, [](const KernelTime& row) { return row.launches == 0; });
  const auto whole = summarize(at::kCUDA, spans);
  return {std::move(rows), static_cast<int64_t>(spans.size()), whole.total_ms, whole.idle_ms};
}

std::vector<Span> profile_step(const Entrant& entrant, const std::vector<Tensor>& parameters) {
  const auto device = parameters.front().device();
  const OwnStream stream(device);
  const auto optimizer = make_optimizer(entrant.optimizer, parameters, entrant.options);
  for (int64_t i = 0; i < kWarmUpSteps; ++i) optimizer->step();
  return profile(device, [&] { optimizer->step(); });
}

}  // namespace prism::bench
