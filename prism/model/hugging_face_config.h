#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "prism/model/config.h"

namespace prism::model {

// The JSON object of hugging_face_config. dtype is the type of the weights beside it: "float32" or "bfloat16".
nlohmann::ordered_json config_object(const ModelConfig& config, std::string_view dtype,
                                     std::optional<uint32_t> end_of_text);

}  // namespace prism::model
