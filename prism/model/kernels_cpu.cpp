#include "prism/model/kernels_cpu.h"

#include <bit>
#include <cmath>

#include "prism/io/clones.h"

namespace prism::model::kernels {
namespace {

// exp(x) within 2 units in the last place, NaN for NaN, written so that loops of it are vectorized: x = k ln 2 + f with
// |f| ≤ ln 2 / 2, and the Taylor polynomial of degree 7 at f (its remainder is below 6e-9).
inline float fast_exp(float x) {
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.0F ? -87.0F : x;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const float shifted = x * 0x1.715476p+0F + kRound;
  const float k = shifted - kRound;
  const float f = (x - k * 0x1.62e4p-1F) - k * 0x1.7f7d1cp-20F;  // ln 2 in two parts, the first exact times any k
  float p = 1.0F / 5040;
  p = p * f + 1.0F / 720;
  p = p * f + 1.0F / 120;
  p = p * f + 1.0F / 24;
  p = p * f + 1.0F / 6;
  p = p * f + 0.5F;
  p = p * f + 1.0F;
  p = p * f + 1.0F;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
}

}  // namespace

PRISM_CLONES void rms_norm(Rows rows, int64_t width, const float* x, const float* y, const float* g, double eps,
                           float* z, float* n, float* r) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* zi = x + row * width;
    float* ni = n + row * width;
    if (y != nullptr) {
      const float* yi = y + row * width;
      float* added = z + row * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) added[j] = zi[j] + yi[j];
      zi = added;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < width; ++j) sum += zi[j] * zi[j];
    const auto ri = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + eps));
    for (int64_t j = 0; j < width; ++j) ni[j] = zi[j] * ri * g[j];
    r[row] = ri;
  }
}

PRISM_CLONES void rms_norm_backward(Rows rows, int64_t width, const float* dn, const float* z, const float* r,
                                    const float* g, const float* a, float* dz, float* dg) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* zi = z + row * width;
    const float* di = dn + row * width;
    float* out = dz + row * width;
    const float ri = r[row];
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < width; ++j) sum += di[j] * g[j] * zi[j];
    const float c = sum * ri * ri * ri / static_cast<float>(width);
    if (a != nullptr) {
      const float* ai = a + row * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[j] = ai[j] + (di[j] * g[j] * ri - zi[j] * c);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[j] = di[j] * g[j] * ri - zi[j] * c;
    }
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) dg[j] += di[j] * zi[j] * ri;
  }
}

PRISM_CLONES void rope(Rows rows, const Rope& rope, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  const int64_t half = rope.head_dim / 2;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* cosine = rope.cosine + row % rope.length * half;
    const float* sine = rope.sine + row % rope.length * half;
    for (int64_t head = 0; head < rope.heads; ++head) {
      const float* in = x + row * x_stride + head * rope.head_dim;
      float* out = y + row * y_stride + head * rope.head_dim;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float a = in[i], b = in[i + half], s = sine[i] * rope.sign;
        out[i] = a * cosine[i] - b * s;
        out[i + half] = b * cosine[i] + a * s;
      }
    }
  }
}

PRISM_CLONES void swiglu(Rows rows, int64_t mlp, const float* ab, float* s) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* a = ab + row * 2 * mlp;
    const float* b = a + mlp;
    float* out = s + row * mlp;
#pragma omp simd
    for (int64_t j = 0; j < mlp; ++j) out[j] = a[j] / (1.0F + fast_exp(-a[j])) * b[j];
  }
}

PRISM_CLONES void swiglu_backward(Rows rows, int64_t mlp, const float* ds, const float* ab, float* s, float* dab) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* a = ab + row * 2 * mlp;
    const float* b = a + mlp;
    const float* d = ds + row * mlp;
    float* da = dab + row * 2 * mlp;
    float* db = da + mlp;
    float* out = s + row * mlp;
#pragma omp simd
    for (int64_t j = 0; j < mlp; ++j) {
      const float dj = d[j], sigmoid = 1.0F / (1.0F + fast_exp(-a[j])), silu = a[j] * sigmoid;
      da[j] = dj * b[j] * (sigmoid + silu * (1.0F - sigmoid));
      db[j] = dj * silu;
      out[j] = silu * b[j];
    }
  }
}

PRISM_CLONES void cross_entropy(Rows rows, int64_t vocab, float* z, const int64_t* targets, float* loss,
                                bool gradient) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* zi = z + row * vocab;
    float largest = zi[0];
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < vocab; ++j) largest = zi[j] > largest ? zi[j] : largest;
    const float target = zi[targets[row]];
    float sum = 0;
    if (gradient) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < vocab; ++j) {
        zi[j] = fast_exp(zi[j] - largest);
        sum += zi[j];
      }
      const float inverse = 1 / sum;
#pragma omp simd
      for (int64_t j = 0; j < vocab; ++j) zi[j] *= inverse;
      zi[targets[row]] -= 1;
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < vocab; ++j) sum += fast_exp(zi[j] - largest);
    }
    loss[row] = (largest - target) + std::log(sum);
  }
}

PRISM_CLONES void add_rows(Rows columns, int64_t count, int64_t width, const int64_t* ids, const float* x, float* W) {
  for (int64_t row = 0; row < count; ++row) {
    const float* xi = x + row * width;
    float* wi = W + ids[row] * width;
    for (int64_t j = columns.begin; j < columns.end; ++j) wi[j] += xi[j];
  }
}

}  // namespace prism::model::kernels
