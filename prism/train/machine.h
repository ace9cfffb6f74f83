#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "prism/train/run_data.h"

namespace prism::train {

// The device of "auto", "cpu", "cuda" or "cuda:1". Throws prism::Error that begins with `who`, the key or option that
// named it, if there is no such device.
at::Device device_of(const std::string& name, const std::string& who = "run.device");

int64_t memory_bytes();  // of this machine

Machine machine(at::Device device);  // at the time of the call

// The version in the text of /proc/driver/nvidia/version, as "580.65.06"; empty where it has none.
std::string driver_version(const std::string& text);

// The commit that the program was built from, with "-dirty" where files had changed since; "unknown" outside git.
const char* built_from();

// The value of the first line "key : value" of a file such as /proc/cpuinfo; empty where there is none.
std::string proc_value(const std::filesystem::path& file, const std::string& key);

std::filesystem::path torch_libraries();  // the folder of the torch that is loaded; empty where it cannot be told

// The most memory held since reset_peak_memory, in bytes. On the CPU the two of the device are 0.
struct PeakMemory {
  int64_t host = 0;      // by the process
  int64_t device = 0;    // by tensors on the device
  int64_t reserved = 0;  // by torch's allocator on the device, for tensors to come
};
PeakMemory peak_memory(at::Device device);
void reset_peak_memory(at::Device device);

}  // namespace prism::train
