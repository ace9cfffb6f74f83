#pragma once

// Thin matrices: the Gram side k is at most 32. In this file a matrix X has k short rows and `length` long columns,
// X(i, j), whichever way it is stored. One block takes a matrix through the whole step:
//   Gram    G and M are read and M is written; TTᵀ and DDᵀ are summed; T is held in shared memory
//   Q       the iteration of prism/cuda/iteration.h on k×k matrices
//   sizes   only for rescaled updates: the rows of O = QᵀT
//   write   W ← (1 − lr·λ)W − lr·scale·O
// A warp takes tiles of 32 columns. Tiles that do not fit shared memory are read again, with the same result.
//
// The Gram products are tensor-core products of tf32 numbers. Each operand is the sum of two, which together hold 22 bits.
// Held tiles are fp16, each with its own power of two, and Q is the sum of two tf32 numbers.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/iteration.h"
#include "prism/cuda/signal.cuh"

namespace prism::cuda::thin {

constexpr int kTile = 32;          // columns of a tile
constexpr int kPitch = kTile + 4;  // of a staged tile: fragments are then read without bank conflicts
constexpr int kIterationBuffers = 5;
constexpr int kMaxIterationProducts = 64;

struct ThinMatrix {
  const void* G;
  float* M;  // null: G is T, and D the innovation
  const float* D;
  void* W;
  float* master;
  const float* step;
  const float* gamma_factor;
  float *C, *C_scale;
  float* row_moment;
  int m, n;
  float gamma_scale, scale;
  Real gradient, weight;
  bool left;
};

struct ThinLaunch {
  SignalSettings settings;
  Rates rates;
  const ThinMatrix* matrices;
  int held_tiles;  // that shared memory has room for
  double bound;
  bool by_norm, rescales, fixed_norm;
  float row_beta;
  float A_scale, Q_scale;
  Buffer Q;
  int product_count;
  IterationProduct products[kMaxIterationProducts];
};

// Blocks for Gram sides up to K, 16 or 32.
template <int K>
struct Sizes {
  static constexpr int kThreads = K == 16 ? 512 : 256, kWarps = kThreads / kWarp;
  static constexpr int kStage = K * kPitch;  // floats
  static constexpr int kSquare = K * (K + 1);
  static constexpr int kFloats = kWarps * kStage + kIterationBuffers * kSquare + K + kWarps * kTile;
  static constexpr int kTileBytes = K * kTile * static_cast<int>(sizeof(__half)) + static_cast<int>(sizeof(float));
};

// ---- tensor-core products

// c += A·B for A (16×8) and B (8×8), as the instruction spreads them over a warp (PTX ISA, "mma.m16n8k8").
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t rounded_to_tf32(float x) {
  uint32_t bits = 0;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// x ≈ high + low.
__device__ inline void split(float x, uint32_t& high, uint32_t& low) {
  high = rounded_to_tf32(x);
  low = rounded_to_tf32(x - __uint_as_float(high));
}

// ---- the step of one matrix

template <int K>
class ThinStep {
 public:
  using Size = Sizes<K>;
  static constexpr int kThreads = Size::kThreads, kWarps = Size::kWarps;

  __device__ ThinStep(const ThinLaunch& launch, const ThinMatrix& matrix, float* memory)
      : launch_(launch),
        matrix_(matrix),
        k_(matrix.left ? matrix.m : matrix.n),
        length_(matrix.left ? matrix.n : matrix.m),
        tiles_((length_ + kTile - 1) / kTile),
        first_i_(lane() % k_),
        first_j_(lane() / k_),
        more_i_(kWarp % k_),
        more_j_(kWarp / k_),
        stage_(memory + warp() * Size::kStage),
        stages_(memory),
        squares_(memory + kWarps * Size::kStage),
        short_rows_(squares_ + kIterationBuffers * Size::kSquare),
        long_rows_(short_rows_ + K + warp() * kTile),
        held_powers_(memory + Size::kFloats),
        held_(reinterpret_cast<__half*>(held_powers_ + (launch.held_tiles + 3) / 4 * 4)) {}

  __device__ void run() {
    const SignalRule rule = read_rule(launch_.settings, matrix_.step);
    needs_D_ = launch_.settings.averaged ? is_refreshed(launch_.settings, *matrix_.step) : launch_.settings.noisy;
    clear();
    for (const bool first : {true, false}) {
      sum_gram(rule, first);
      if (!is_extreme(T_largest_) && !is_extreme(D_largest_)) break;
      T_power_ = static_cast<float>(operand_power(T_largest_));
      D_power_ = static_cast<float>(operand_power(D_largest_));
    }
    prefetch_weights();
    form_gram();
    iterate();
    load_Q();
    if (launch_.rescales) measure_rows(rule);
    write(rule);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int group() { return lane() / 4; }     // the row of a fragment
  __device__ static int in_group() { return lane() % 4; }  // its column, or pair of columns

  // Returns true if float32 may not hold the squares, or their sums.
  __device__ static bool is_extreme(float largest) {
    return largest != 0 && !(largest > 0x1p-40f && largest < 0x1p40f);
  }

  // ---- elements of a tile: each lane has k of them

  // Calls body(q, offset, valid, i, j) for the lane's elements q = 0 … k−1: X(i, 32·tile + j), at `offset` in memory.
  // The lanes of a warp have adjacent offsets.
  template <class Body>
  __device__ void for_elements(int tile, const Body& body) const {
    if (matrix_.left) {
      const int column = tile * kTile + lane();
#pragma unroll
      for (int q = 0; q < K; ++q) {
        if (q < k_) body(q, q * length_ + column, column < length_, q, lane());
      }
    } else {
      const int first = tile * kTile * k_ + lane(), size = length_ * k_;
      int i = first_i_, j = first_j_;
#pragma unroll
      for (int q = 0; q < K; ++q) {
        if (q < k_) {
          body(q, first + q * kWarp, first + q * kWarp < size, i, j);
          i += more_i_, j += more_j_;
          if (i >= k_) i -= k_, ++j;
        }
      }
    }
  }

  template <class T>
  __device__ void load(float (&values)[K], const T* source, int tile) const {
    for_elements(tile,
                 [&](int q, int offset, bool valid, int, int) { values[q] = valid ? to_float(source[offset]) : 0; });
  }
  __device__ void load(float (&values)[K], const void* source, Real type, int tile) const {
    switch (type) {
      case Real::Float32:
        return load(values, static_cast<const float*>(source), tile);
      case Real::Float16:
        return load(values, static_cast<const __half*>(source), tile);
      case Real::BFloat16:
        return load(values, static_cast<const __nv_bfloat16*>(source), tile);
    }
  }

  // T and D of a tile. The first time M is advanced.
  __device__ void load_signal(float (&T)[K], float (&D)[K], const SignalRule& rule, bool first, int tile) const {
#pragma unroll
    for (int q = 0; q < K; ++q) T[q] = D[q] = 0;
    load(T, matrix_.G, matrix_.gradient, tile);
    if (matrix_.M == nullptr) {
      if (matrix_.D != nullptr) load(D, matrix_.D, tile);
      return;
    }
    float* M = matrix_.M;
    load(D, M, tile);
    for_elements(tile, [&](int q, int offset, bool valid, int, int) {
      const Signal signal = first ? rule(T[q], D[q]) : rule.after(T[q], D[q]);
      if (first && valid) M[offset] = signal.M;
      T[q] = signal.T, D[q] = signal.D;
    });
  }

  __device__ void stage(const float (&values)[K], float factor, int tile) {
    __syncwarp();
    for_elements(tile, [&](int q, int, bool, int i, int j) { stage_[i * kPitch + j] = values[q] * factor; });
    __syncwarp();
  }

  // Writes a tile of T as fp16, column after column, and returns the inverse of its power of two.
  __device__ float hold(__half* target, const float (&T)[K], int tile) const {
    float largest = 0;
#pragma unroll
    for (int q = 0; q < K; ++q) largest = fmaxf(largest, fabsf(T[q]));
    const uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
    // Brings the largest to 2¹³ … 2¹⁴.
    const int power = max(-120, min(120, 140 - static_cast<int>(bits >> 23)));
    const float factor = __int_as_float((127 + power) << 23);
    if (matrix_.left) {  // the lane has a whole column
#pragma unroll
      for (int i = 0; i < K; i += 8) {
        uint4 eight;
        auto* pairs = reinterpret_cast<__half2*>(&eight);
#pragma unroll
        for (int p = 0; p < 4; ++p) pairs[p] = __floats2half2_rn(T[i + 2 * p] * factor, T[i + 2 * p + 1] * factor);
        *reinterpret_cast<uint4*>(target + lane() * K + i) = eight;
      }
    } else {
      for_elements(tile, [&](int q, int, bool, int i, int j) { target[j * K + i] = __float2half_rn(T[q] * factor); });
    }
    return __int_as_float((127 - power) << 23);
  }

  // ---- the Gram matrices

  // Padding is never written: rows k … K−1 of what is staged or held.
  __device__ void clear() {
    for (int x = threadIdx.x; x < kWarps * Size::kStage; x += kThreads) stages_[x] = 0;
    if (k_ < K && !matrix_.left) {
      auto* words = reinterpret_cast<uint32_t*>(held_);
      const int count = min(tiles_, launch_.held_tiles) * K * kTile / 2;
      for (int x = threadIdx.x; x < count; x += kThreads) words[x] = 0;
    }
    __syncthreads();
  }

  // 16×8 parts of a symmetric K×K matrix whose columns begin no later than their rows end.
  static constexpr int kParts = K / 16 * (K / 16 + 1);
  using Gram = float[kParts][4];

  // Adds XXᵀ of the staged tile.
  __device__ void add_products(Gram& sum) const {
#pragma unroll
    for (int column = 0; column < kTile; column += 8) {
      uint32_t high[K / 16][4], low[K / 16][4];
#pragma unroll
      for (int r = 0; r < K / 16; ++r) {
        const float* at = stage_ + (16 * r + group()) * kPitch + column + in_group();
        split(at[0], high[r][0], low[r][0]);
        split(at[8 * kPitch], high[r][1], low[r][1]);
        split(at[4], high[r][2], low[r][2]);
        split(at[8 * kPitch + 4], high[r][3], low[r][3]);
      }
#pragma unroll
      for (int r = 0; r < K / 16; ++r) {
#pragma unroll
        for (int c = 0; c < 2 * r + 2; ++c) {  // the rows 8c … 8c + 7, transposed, are half of a fragment
          float(&part)[4] = sum[r * (r + 1) + c];
          multiply_add(part, low[r], high[c / 2][c % 2], high[c / 2][c % 2 + 2]);
          multiply_add(part, high[r], low[c / 2][c % 2], low[c / 2][c % 2 + 2]);
          multiply_add(part, high[r], high[c / 2][c % 2], high[c / 2][c % 2 + 2]);
        }
      }
    }
  }

  // Sums the parts of all warps into a buffer, lower triangle and diagonal.
  __device__ void sum_warps(const Gram& sum, float* buffer) {
    __syncthreads();  // the stages are not read any more
    float* mine = stages_ + warp() * K * K;
#pragma unroll
    for (int r = 0; r < K / 16; ++r) {
#pragma unroll
      for (int c = 0; c < 2 * r + 2; ++c) {
        float* at = mine + (16 * r + group()) * K + 8 * c + 2 * in_group();
        const float(&part)[4] = sum[r * (r + 1) + c];
        at[0] = part[0], at[1] = part[1], at[8 * K] = part[2], at[8 * K + 1] = part[3];
      }
    }
    __syncthreads();
    for (int x = threadIdx.x; x < K * K; x += kThreads) {
      const int i = x / K, j = x % K;
      if (j > i) continue;
      float total = 0;
      for (int w = 0; w < kWarps; ++w) total += stages_[w * K * K + x];
      buffer[i * (K + 1) + j] = total;
    }
    __syncthreads();
  }

  __device__ float largest_in_block(float mine) {
    const uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(mine));
    __shared__ uint32_t warps[kWarps];
    __syncthreads();
    if (lane() == 0) warps[warp()] = bits;
    __syncthreads();
    uint32_t all = 0;
    for (int w = 0; w < kWarps; ++w) all = max(all, warps[w]);
    return __uint_as_float(all);
  }

  __device__ void sum_gram(const SignalRule& rule, bool first) {
    Gram T_sum = {}, D_sum = {};
    float T_largest = 0, D_largest = 0;
    for (int tile = warp(); tile < tiles_; tile += kWarps) {
      float T[K], D[K];
      load_signal(T, D, rule, first, tile);
      prefetch_signal(tile + kWarps);
#pragma unroll
      for (int q = 0; q < K; ++q) {
        T_largest = fmaxf(T_largest, fabsf(T[q]));
        if (needs_D_) D_largest = fmaxf(D_largest, fabsf(D[q]));
      }
      if (first && tile < launch_.held_tiles) {
        const float power = hold(held_ + tile * K * kTile, T, tile);
        if (lane() == 0) held_powers_[tile] = power;
      }
      stage(T, T_power_, tile);
      add_products(T_sum);
      if (needs_D_) {
        stage(D, D_power_, tile);
        add_products(D_sum);
      }
    }
    sum_warps(T_sum, T_gram());
    if (needs_D_) sum_warps(D_sum, D_gram());
    T_largest_ = largest_in_block(T_largest);
    D_largest_ = largest_in_block(D_largest);
    for (int x = threadIdx.x; x < kWarps * Size::kStage; x += kThreads) stages_[x] = 0;  // the padding
    __syncthreads();
  }

  __device__ static void prefetch_at(const void* base, Real type, int offset) {
    prefetch(static_cast<const char*>(base) + static_cast<int64_t>(offset) * (type == Real::Float32 ? 4 : 2));
  }

  // Brings the gradient and momentum of a tile to the L2 cache, a line by each of k lanes.
  __device__ void prefetch_signal(int tile) const {
    const int offset = matrix_.left ? lane() * length_ + tile * kTile : (tile * k_ + lane()) * kTile;
    if (tile >= tiles_ || lane() >= k_ || offset >= length_ * k_ || matrix_.M == nullptr) return;
    prefetch_at(matrix_.G, matrix_.gradient, offset);
    prefetch_at(matrix_.M, Real::Float32, offset);
  }

  // The same for all weights, while the iteration runs.
  __device__ void prefetch_weights() const {
    for (int at = static_cast<int>(threadIdx.x) * kTile; at < length_ * k_; at += kThreads * kTile)
      prefetch_at(matrix_.W, matrix_.weight, at);
  }

  __device__ float* square(int b) const { return squares_ + b * Size::kSquare; }
  __device__ float* buffer(Buffer b) const { return square(b == kA ? 0 : b == kS ? 1 : b - kZ0 + 2); }
  __device__ float* T_gram() const { return buffer(kZ0); }
  __device__ float* D_gram() const { return buffer(kZ1); }

  // Sums over a warp, in a fixed order, in every lane.
  __device__ static double warp_total(double x) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
  }

  // Factors of R = T·TTᵀ + D·DDᵀ + C·C + uniform·I, of trace 1, and of C ← kept·C + added·DDᵀ.
  struct Factors {
    float T, D, C, uniform;
    float kept, added;
    bool refreshes;
  };

  // The factors, and the update's, from the traces: one warp, whose lanes each have an entry of the diagonals.
  __device__ Factors factors() {
    const bool mine = lane() < k_;
    const int at = lane() * (K + 1) + lane();
    const double T_unit = 1. / T_power_ / T_power_, D_unit = 1. / D_power_ / D_power_;
    const double T_trace = warp_total(mine ? T_gram()[at] : 0) * T_unit;
    const double D_trace = warp_total(mine && needs_D_ ? D_gram()[at] : 0) * D_unit;
    const double gamma = gamma_of(launch_.settings, matrix_.gamma_scale, matrix_.gamma_factor);
    Factors result{};
    double trace = T_trace, C = 0;
    if (launch_.settings.averaged) {
      const float entry = mine ? matrix_.C[lane() * k_ + lane()] : 0;
      const double C_trace = warp_total(entry);
      const float largest = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(entry))));
      const Average average = next_average(launch_.settings, *matrix_.step, *matrix_.C_scale, largest, D_largest_);
      const double size = average.scale * average.scale;
      trace += gamma * gamma * average.correction * (average.shrink * C_trace * size + average.added * D_trace);
      C = gamma * gamma * average.correction * size;
      result.refreshes = average.is_due;
      result.kept = static_cast<float>(average.shrink);
      result.added = static_cast<float>(average.added * D_unit / size);
      __syncwarp();
      if (lane() == 0) *matrix_.C_scale = static_cast<float>(average.scale);
    } else {
      trace += gamma * gamma * D_trace;
    }
    const double damping = launch_.settings.damping;
    trace *= 1 + damping;
    update_ = trace > 0 ? 1 / (launch_.Q_scale * launch_.bound * sqrt(trace)) : 0;
    if (trace > 0) {
      result.T = static_cast<float>(T_unit / trace);
      result.D = launch_.settings.averaged ? 0 : static_cast<float>(gamma * gamma * D_unit / trace);
      result.C = static_cast<float>(C / trace);
    }
    result.uniform = static_cast<float>(damping / (1 + damping) / k_);
    return result;
  }

  // A = A_scale·R/bound², for R of trace 1 or of norm 1. Advances Ĉ.
  __device__ void form_gram() {
    __shared__ Factors shared;
    __shared__ double update;
    if (warp() == 0) {
      const Factors mine = factors();
      if (lane() == 0) shared = mine, update = update_;
    }
    __syncthreads();
    const Factors f = shared;
    update_ = update;
    float* A = buffer(kA);
    for (int x = threadIdx.x; x < K * K; x += kThreads) {
      const int i = x / K, j = x % K, at = i * (K + 1) + j, low = max(i, j) * (K + 1) + min(i, j);
      float value = 0;
      if (i < k_ && j < k_) {
        value = f.T * T_gram()[low];
        if (launch_.settings.averaged) {
          float C = matrix_.C[i * k_ + j];
          if (f.refreshes) matrix_.C[i * k_ + j] = C = fmaf(f.added, D_gram()[low], f.kept * C);
          value = fmaf(f.C, C, value);
        } else if (needs_D_) {
          value = fmaf(f.D, D_gram()[low], value);
        }
        if (i == j) value += f.uniform;
      }
      A[at] = value;
    }
    __syncthreads();
    double norm = 1;
    if (launch_.by_norm) norm = norm_of(A);
    update_ /= sqrt(norm);
    const auto factor = static_cast<float>(launch_.A_scale / (launch_.bound * launch_.bound * norm));
    for (int x = threadIdx.x; x < K * K; x += kThreads) A[x / K * (K + 1) + x % K] *= factor;
    __syncthreads();
  }

  // ‖R‖_F, or 1 for 0. The warps compute it alike.
  __device__ double norm_of(const float* R) const {
    double mine = 0;
    for (int i = 0; i < K && lane() < K; ++i) {
      const double x = R[i * (K + 1) + lane()];
      mine = fma(x, x, mine);
    }
    const double sum = warp_total(mine);
    __syncthreads();
    return sum == 0 ? 1 : sqrt(sum);
  }

  // ---- the iteration

  __device__ void iterate() {
    for (int p = 0; p < launch_.product_count; ++p) {
      const IterationProduct& product = launch_.products[p];
      const float *X = buffer(product.X), *Y = buffer(product.Y);
      const float* C1 = product.C1 == kNone ? nullptr : buffer(product.C1);
      float* result = buffer(product.high);
      for (int x = threadIdx.x; x < K * K; x += kThreads) {
        const int i = x / K, j = x % K;
        const int row = product.symmetric ? max(i, j) : i, column = product.symmetric ? min(i, j) : j;
        float sum = 0;
#pragma unroll
        for (int l = 0; l < K; ++l) sum = fmaf(X[row * (K + 1) + l], Y[column * (K + 1) + l], sum);
        float value = product.alpha * sum;
        if (C1 != nullptr) value = fmaf(product.c1, C1[row * (K + 1) + column], value);
        if (i == j && i < k_) value += product.diagonal;
        result[i * (K + 1) + j] = value;
      }
      __syncthreads();
    }
  }

  // ---- the update O = QᵀT

  // Fragments of Qᵀ. A lane's four adjacent entries of a held column are the inner indices of two products.
  __device__ void load_Q() {
    const float* Q = buffer(launch_.Q);
#pragma unroll
    for (int r = 0; r < K / 16; ++r) {
#pragma unroll
      for (int s = 0; s < K / 8; ++s) {
        const float* at = Q + (s / 2 * 16 + 4 * in_group() + s % 2 * 2) * (K + 1) + 16 * r + group();
        split(at[0], Q_high_[r][s][0], Q_low_[r][s][0]);
        split(at[8], Q_high_[r][s][1], Q_low_[r][s][1]);
        split(at[K + 1], Q_high_[r][s][2], Q_low_[r][s][2]);
        split(at[K + 1 + 8], Q_high_[r][s][3], Q_low_[r][s][3]);
      }
    }
  }

  // Stages QᵀT of a tile and returns its factor: O = factor·QᵀT.
  __device__ float stage_update(const SignalRule& rule, int tile) {
    const __half* T = held_ + tile * K * kTile;
    float power = 0;
    if (tile < launch_.held_tiles) {
      power = held_powers_[tile];
    } else {
      auto* here = reinterpret_cast<__half*>(stage_);
      float values[K], D[K];
      load_signal(values, D, rule, /*first=*/false, tile);
      __syncwarp();
      if (k_ < K && !matrix_.left) {
        for (int x = lane(); x < K * kTile; x += kWarp) here[x] = __half(0);
        __syncwarp();
      }
      power = hold(here, values, tile);
      T = here;
    }
    __syncwarp();
    uint2 fragments[kTile / 8][K / 16];
#pragma unroll
    for (int c = 0; c < kTile / 8; ++c) {
#pragma unroll
      for (int u = 0; u < K / 16; ++u)
        fragments[c][u] = *reinterpret_cast<const uint2*>(T + (8 * c + group()) * K + 16 * u + 4 * in_group());
    }
    __syncwarp();  // T may lie in the stage
#pragma unroll
    for (int c = 0; c < kTile / 8; ++c) {
      float O[K / 16][4] = {};
#pragma unroll
      for (int u = 0; u < K / 16; ++u) {
        const float2 first = __half22float2(*reinterpret_cast<const __half2*>(&fragments[c][u].x));
        const float2 second = __half22float2(*reinterpret_cast<const __half2*>(&fragments[c][u].y));
#pragma unroll
        for (int r = 0; r < K / 16; ++r) {
          multiply_add(O[r], Q_low_[r][2 * u], __float_as_uint(first.x), __float_as_uint(first.y));
          multiply_add(O[r], Q_low_[r][2 * u + 1], __float_as_uint(second.x), __float_as_uint(second.y));
          multiply_add(O[r], Q_high_[r][2 * u], __float_as_uint(first.x), __float_as_uint(first.y));
          multiply_add(O[r], Q_high_[r][2 * u + 1], __float_as_uint(second.x), __float_as_uint(second.y));
        }
      }
#pragma unroll
      for (int r = 0; r < K / 16; ++r) {
        float* at = stage_ + (16 * r + group()) * kPitch + 8 * c + 2 * in_group();
        *reinterpret_cast<float2*>(at) = make_float2(O[r][0], O[r][1]);
        *reinterpret_cast<float2*>(at + 8 * kPitch) = make_float2(O[r][2], O[r][3]);
      }
    }
    __syncwarp();
    return static_cast<float>(update_ * power);
  }

  struct RowSums {
    double O, X;  // squares of O, and of O with its rows normalized
  };

  // Advances v of one row, given the sum of its squares, and returns its factor.
  __device__ float row_factor(int row, float squares, RowSums& sums) const {
    float factor = 1;
    if (matrix_.row_moment != nullptr) {
      float& v = matrix_.row_moment[row];
      v = fmaf(1 - launch_.row_beta, squares / static_cast<float>(matrix_.n) - v, v);
      if (v != 0) factor = 1 / sqrtf(v);
    }
    sums.O += squares;
    sums.X += static_cast<double>(squares) * factor * factor;
    return factor;
  }

  // The factors of the matrix's rows and of the whole update (prism/cuda/rescale.h).
  __device__ void measure_rows(const SignalRule& rule) {
    RowSums sums{0, 0};
    float squares[K] = {};
    for (int tile = warp(); tile < tiles_; tile += kWarps) {
      const float factor = stage_update(rule, tile);
      float column = 0;
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const float x = factor * stage_[i * kPitch + lane()];
        squares[i] = fmaf(x, x, squares[i]);
        column = fmaf(x, x, column);
      }
      __syncwarp();
      const int row = tile * kTile + lane();
      if (!matrix_.left && row < length_) row_factor(row, column, sums);
    }
    if (matrix_.left) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const float sum = warp_sum(squares[i]);
        if (lane() == 0) stages_[warp() * K + i] = sum;
      }
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < k_) {
        float sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += stages_[w * K + threadIdx.x];
        short_rows_[threadIdx.x] = row_factor(static_cast<int>(threadIdx.x), sum, sums);
      }
    }
    const RowSums total = merged_in_block<kThreads>(sums, [](RowSums& a, const RowSums& b) { a.O += b.O, a.X += b.X; });
    __shared__ double norm_factor;
    if (threadIdx.x == 0) {
      const double wanted = launch_.fixed_norm ? min(matrix_.m, matrix_.n) : total.O;
      norm_factor = total.X > 0 ? sqrt(wanted / total.X) : 0;
    }
    __syncthreads();
    update_ *= norm_factor;
  }

  // The factors of the rows that a tile's elements lie in.
  __device__ const float* row_factors(int tile) const {
    if (matrix_.left) return short_rows_;
    const int row = tile * kTile + lane();
    float factor = 1;
    if (row < length_ && matrix_.row_moment != nullptr) {
      const float v = matrix_.row_moment[row];
      if (v != 0) factor = 1 / sqrtf(v);
    }
    long_rows_[lane()] = factor;
    __syncwarp();
    return long_rows_;
  }

  // Writes the weights of a tile from the staged update.
  template <class T>
  __device__ void write_tile(const float (&w)[K], const float (&masters)[K], float factor, const float* rows,
                             const DecayAndRate& rates, int tile) const {
    auto* W = static_cast<T*>(matrix_.W);
    float* master = matrix_.master;
    const bool left = matrix_.left;
    for_elements(tile, [&](int q, int offset, bool valid, int i, int j) {
      if (!valid) return;
      float u = factor * stage_[i * kPitch + j];
      if (rows != nullptr) u *= rows[left ? i : j];
      const float old = master != nullptr ? current_master(masters[q], from_float<T>(w[q])) : w[q];
      const float next = updated(old, u, rates);
      if (master != nullptr) master[offset] = next;
      W[offset] = from_float<T>(next);
    });
  }

  __device__ void write(const SignalRule& rule) {
    const DecayAndRate rates = decay_and_rate(launch_.rates);
    for (int tile = warp(); tile < tiles_; tile += kWarps) {
      float w[K] = {}, masters[K] = {};
      load(w, matrix_.W, matrix_.weight, tile);
      if (matrix_.master != nullptr) load(masters, matrix_.master, tile);
      const float factor = matrix_.scale * stage_update(rule, tile);
      const float* rows = launch_.rescales ? row_factors(tile) : nullptr;
      switch (matrix_.weight) {
        case Real::Float32:
          write_tile<float>(w, masters, factor, rows, rates, tile);
          break;
        case Real::Float16:
          write_tile<__half>(w, masters, factor, rows, rates, tile);
          break;
        case Real::BFloat16:
          write_tile<__nv_bfloat16>(w, masters, factor, rows, rates, tile);
          break;
      }
      __syncwarp();
    }
  }

  const ThinLaunch& launch_;
  const ThinMatrix& matrix_;
  const int k_, length_, tiles_;
  const int first_i_, first_j_, more_i_, more_j_;  // of a lane's elements, if rows are long
  float *stage_, *stages_;                         // of this warp, of all
  float* squares_;                                 // the buffers of the iteration
  float *short_rows_, *long_rows_;
  float* held_powers_;
  __half* held_;
  bool needs_D_ = false;
  float T_largest_ = 0, D_largest_ = 0;
  float T_power_ = 1, D_power_ = 1;  // of the operands of the Gram matrices
  double update_ = 0;                // O = update·QᵀT
  uint32_t Q_high_[K / 16][K / 8][4], Q_low_[K / 16][K / 8][4];
};

}  // namespace prism::cuda::thin
