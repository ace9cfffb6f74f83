#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/bench/optimizers.h"

namespace prism::bench {

// The file of figures, one device's:
//   device, torch, date      where and when the newest of them were measured
//   step_ms.MODEL.NAME       an optimizer's step, the better of eager and captured
//   tokens_per_s.MODEL       whole training steps
//   details.…, kernels.…, train.…   all that was measured
// New figures take the place of old ones of the same name and leave the others as they are.
class ResultsFile {
 public:
  // Reads what is there. A file that cannot be written, is no JSON object or holds another device's figures is a
  // prism::Error.
  ResultsFile(const std::filesystem::path& file, at::Device device);

  void merge(const nlohmann::json& figures);  // writes the file

 private:
  std::filesystem::path file_;
  nlohmann::json document_;
};

// step_ms and details of one model.
nlohmann::json step_figures(const std::string& model, const std::vector<StepTime>& rows,
                            const std::optional<Peak>& peak);

// A page of bars: for each model the steps of all optimizers.
struct PageModel {
  std::string name, detail;  // "22m", "56 matrices, 23 M parameters"
  std::vector<StepTime> rows;
};
void write_page(const std::filesystem::path& file, const std::string& device, const std::vector<PageModel>& models);

}  // namespace prism::bench
