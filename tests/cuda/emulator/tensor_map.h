#pragma once

// What the emulator keeps in a CUtensorMap.

#include <cuda.h>

#include <cstdint>
#include <cstring>

namespace prism::cuda::emulator {

struct TensorMap {
  uint8_t* data;
  int64_t sizes[3], strides[2];  // strides in bytes
  int element, box_columns, box_rows, swizzle;

  static TensorMap of(const CUtensorMap* map) {
    static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));
    TensorMap result;
    memcpy(&result, map, sizeof(TensorMap));
    return result;
  }

  bool contains(int64_t x, int64_t y, int64_t z) const {
    return x >= 0 && x < sizes[0] && y >= 0 && y < sizes[1] && z >= 0 && z < sizes[2];
  }
  uint8_t* at(int64_t x, int64_t y, int64_t z) const { return data + z * strides[1] + y * strides[0] + x * element; }
  int64_t box_bytes() const { return int64_t{box_columns} * box_rows * element; }
};

// The place in shared memory of the byte at `offset`: the copy engine permutes the 16-byte pieces of rows of 128 or 64 bytes.
inline uint64_t swizzled(uint64_t offset, int swizzle) {
  if (swizzle == 128) return offset ^ (offset >> 7 & 7) << 4;
  if (swizzle == 64) return offset ^ (offset >> 7 & 3) << 4;
  return offset;
}

}  // namespace prism::cuda::emulator
