#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"

namespace prism::bench {

// A JSON file with the measurements of one device:
//   device, torch, date             of the newest measurement
//   step_ms.MODEL.NAME              an optimizer's step, the faster of eager and captured
//   tokens_per_s.MODEL              whole training steps
//   details.…, kernels.…, train.…   everything that was measured
// New figures replace old ones of the same name and leave the others alone.
class ResultsFile {
 public:
  // Reads the file if it exists. Throws prism::Error if it cannot be written, is not a JSON object or holds figures of
  // another device.
  ResultsFile(const std::filesystem::path& file, at::Device device);

  void merge(const nlohmann::json& figures);  // and write the file

 private:
  std::filesystem::path file_;
  nlohmann::json document_;
};

// Returns step_ms and details of one model.
nlohmann::json step_figures(const std::string& model, const std::vector<StepTime>& rows,
                            const std::optional<Peak>& peak);

struct PageModel {
  std::string name, detail;  // "22m", "56 matrices, 23 M parameters"
  std::vector<StepTime> rows;
};

// Writes a page of bars: for each model, the step times of all optimizers.
void write_page(const std::filesystem::path& file, const std::string& device, const std::vector<PageModel>& models);

}  // namespace prism::bench
