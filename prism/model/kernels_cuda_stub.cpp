// The CUDA kernels in a build without CUDA.

#include "prism/model/kernels_cuda.h"

namespace prism::model::cuda {
namespace {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported
}

bool available(int /*device*/) { return false; }
const char* error_text(int /*error*/) { return "built without CUDA"; }
bool supports_width(int64_t /*width*/) { return false; }
int64_t parts_of(int64_t /*rows*/) { return 0; }

int rms_norm(Target, int64_t, int64_t, const Norm&) { return kNotSupported; }
int rms_norm_backward(Target, int64_t, int64_t, const NormBackward&) { return kNotSupported; }
int rope(Target, const Heads&, Bfloat16*) { return kNotSupported; }
int rope_backward(Target, const Heads&, const HeadGradients&, Bfloat16*, float*) { return kNotSupported; }
int sum_rows(Target, int64_t, int64_t, const float*, float*) { return kNotSupported; }
int swiglu(Target, int64_t, int64_t, const Bfloat16*, Bfloat16*) { return kNotSupported; }
int swiglu_backward(Target, int64_t, int64_t, const Bfloat16*, const Bfloat16*, Bfloat16*, Bfloat16*) {
  return kNotSupported;
}
int cross_entropy(Target, int64_t, int64_t, Bfloat16*, const int64_t*, float*, bool) { return kNotSupported; }
int cross_entropy(Target, int64_t, int64_t, float*, const int64_t*, float*, bool) { return kNotSupported; }
int scale(Target, int64_t, const Bfloat16*, const float*, Bfloat16*) { return kNotSupported; }
int scale(Target, int64_t, const float*, const float*, float*) { return kNotSupported; }
int64_t pieces_of(int64_t /*rows*/) { return 0; }
int add_rows(Target, const AddRows&) { return kNotSupported; }

}  // namespace prism::model::cuda
