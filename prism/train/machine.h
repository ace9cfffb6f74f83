#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "prism/train/run_data.h"

namespace prism::train {

// Returns the device named "auto", "cpu", "cuda" or "cuda:1". Throws prism::Error if there is no such device. The
// message begins with `who`, the key or option that named it.
at::Device device_of(const std::string& name, const std::string& who = "run.device");

// The physical memory of this machine.
int64_t memory_bytes();

// Describes this machine, the program and the device, with the current time.
Machine machine(at::Device device);

// Returns the version, "580.65.06", from the text of /proc/driver/nvidia/version; empty if it has none.
std::string driver_version(const std::string& text);

// Returns the commit that the program was built from, with "-dirty" if files had changed since; "unknown" outside git.
const char* build_commit();

// Returns the value of the first line "key : value" of a file like /proc/cpuinfo; empty if there is none.
std::string proc_value(const std::filesystem::path& file, const std::string& key);

// Returns the folder of the torch libraries that are loaded; empty if it is unknown.
std::filesystem::path torch_libraries();

// Peak memory since reset_peak_memory, in bytes. `device` and `reserved` are 0 on the CPU.
struct PeakMemory {
  int64_t host = 0;      // of the process
  int64_t device = 0;    // of tensors on the device
  int64_t reserved = 0;  // held by torch's allocator on the device
};
PeakMemory peak_memory(at::Device device);
void reset_peak_memory(at::Device device);

}  // namespace prism::train
