#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace prism::train {

at::Device device_of(
    const std::string& name);  // "auto", "cpu", "cuda", "cuda:1"; a device that is not there is a prism::Error

// Processor, cores, threads, memory, device, torch, compiler, system: what a measurement should name.
nlohmann::json machine(at::Device device);

// The value of the first line "key : value" of a file such as /proc/cpuinfo; empty where there is none.
std::string proc_value(const std::filesystem::path& file, const std::string& key);

std::filesystem::path torch_libraries();  // the folder of the torch that is loaded; empty where it cannot be told

// The most memory the process has held since reset_peak_memory, in bytes.
int64_t peak_memory();
void reset_peak_memory();

}  // namespace prism::train
