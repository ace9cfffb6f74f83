#pragma once

// prism/cuda/instructions.cuh for the emulator.

#include <cstdint>

#include "tests/cuda/emulator/machine.h"

namespace prism::cuda {

inline void prefetch(const void* /*line*/) {}

inline uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(emulator::shared_offset(pointer)); }

// Lane 4i + j has columns 2j and 2j + 1 of row i.
inline uint32_t transposed(uint32_t block) {
  emulator::Warp& warp = emulator::current().warp();
  const auto lane = static_cast<size_t>(emulator::current().lane());
  warp.values[lane] = block;
  warp.meeting.meet(emulator::kWarp);
  const auto at = [&](size_t row, size_t column) {
    return static_cast<uint32_t>(warp.values[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff);
  };
  const size_t row = lane / 4, column = lane % 4 * 2;
  const uint32_t result = at(column, row) | at(column + 1, row) << 16;
  warp.meeting.meet(emulator::kWarp);
  return result;
}

}  // namespace prism::cuda
