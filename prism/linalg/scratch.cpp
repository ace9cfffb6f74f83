#include "prism/linalg/scratch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <c10/core/CPUAllocator.h>

#include <map>
#include <memory>
#include <mutex>

namespace prism {
namespace {

// The blocks of a scope that no tensor uses. A tensor may outlive its scope, and end on another thread.
class Pool {
 public:
  struct Block {
    size_t bytes;
    at::DataPtr memory;
  };

  // The smallest block that is large enough, or a new one.
  Block take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(bytes);
    if (found == free_.end()) return {bytes, c10::GetCPUAllocator()->allocate(bytes)};
    Block block{found->first, std::move(found->second)};
    free_.erase(found);
    return block;
  }

  void give_back(Block block) {
    const std::lock_guard lock(mutex_);
    if (is_open_) free_.emplace(block.bytes, std::move(block.memory));
  }

  void close() {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
    free_.clear();
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, at::DataPtr> free_;
  bool is_open_ = true;
};

thread_local std::shared_ptr<Pool> pool;  // null outside of a scope

bool reuses(const at::TensorOptions& options) { return pool != nullptr && options.device().is_cpu(); }
bool reuses(const Tensor& X) { return reuses(X.options()); }

}  // namespace

ScratchScope::ScratchScope() {
  TORCH_INTERNAL_ASSERT(pool == nullptr);
  pool = std::make_shared<Pool>();
}

ScratchScope::~ScratchScope() {
  pool->close();
  pool = nullptr;
}

Tensor scratch(at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!reuses(options)) return at::empty(shape, options);
  const auto bytes = static_cast<size_t>(c10::multiply_integers(shape)) * options.dtype().itemsize();
  auto block = std::make_shared<Pool::Block>(pool->take(bytes));
  void* data = block->memory.get();
  return at::from_blob(
      data, shape, [block, from = pool](void*) { from->give_back(std::move(*block)); }, options);
}

Tensor scratch_copy(const Tensor& X) { return reuses(X) ? scratch(X.sizes(), X.options()).copy_(X) : X.clone(); }

Tensor scaled(const Tensor& X, double factor) {
  if (!reuses(X)) return X * factor;
  Tensor Y = scratch(X.sizes(), X.options());
  return at::mul_out(Y, X, factor);
}

}  // namespace prism
