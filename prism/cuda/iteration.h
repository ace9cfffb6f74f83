#pragma once

// How the iteration on a k×k Gram matrix is carried out: which products, on which buffers, with which scales. Plain C++.

#include <vector>

#include "prism/cuda/launch.h"

namespace prism::cuda {

// The matrices of the iteration. Zs rotate: the first Z becomes Q.
enum Buffer { kA, kA_low, kU, kV, kZ0, kZ1, kZ2, kBuffers, kNone = -1 };

// One product X·Yᵀ of buffers (+ X_low·Yᵀ or X·Y_lowᵀ) with its result (prism/cuda/product.h, Epilogue::Matrix), scales of operands included.
struct IterationProduct {
  Buffer X, Y, X_low = kNone, Y_low = kNone;
  bool symmetric = true;
  float alpha = 1, c1 = 0, c2 = 0, diagonal = 0, y1 = 0, y2 = 0;
  Buffer C1 = kNone, C1_low = kNone, C2 = kNone;
  Buffer high = kNone, low = kNone, second = kNone;
};

// For R of trace 1/bound²:  A = R (or R − I);  Z = c₀ + c₁A + c₂A² + …;  Q ← QZ;  R ← ZRZ.
// Every buffer holds its matrix times a power of two that takes the largest value the iteration can reach well below fp16's 65504: entries of
// a symmetric matrix are bounded by its largest eigenvalue, and those by the polynomials.
struct Iteration {
  float A_scale;       // at the start: A = A_scale·R, split into kA and kA_low
  bool A_split;        // whether the first step reads kA_low
  std::vector<IterationProduct> products;
  Buffer Q;            // the result
  float Q_scale;
};

Iteration plan_iteration(const std::vector<GramStep>& steps, double bound);

}  // namespace prism::cuda
