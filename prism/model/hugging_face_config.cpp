#include "prism/model/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/model/hugging_face.h"

namespace prism::model {
namespace {

using nlohmann::json;

// Reads a config.json key by key. A key that is absent or null takes the given default.
class Reader {
 public:
  Reader(std::string_view text, std::string_view where) : where_(where), object_(io::parse_json(text, where)) {
    if (!object_.is_object()) fail("expected a JSON object");
  }

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& at(const char* key) const { return object_[key]; }

  int64_t integer(const char* key, std::optional<int64_t> otherwise = {}) const {
    if (!has(key)) {
      if (!otherwise) fail(fmt::format("'{}' is missing", key));
      return *otherwise;
    }
    if (!at(key).is_number_integer()) fail(fmt::format("'{}' must be a whole number, got {}", key, show(key)));
    return at(key).get<int64_t>();
  }

  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_number()) fail(fmt::format("'{}' must be a number, got {}", key, show(key)));
    return at(key).get<double>();
  }

  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_boolean()) fail(fmt::format("'{}' must be true or false, got {}", key, show(key)));
    return at(key).get<bool>();
  }

  // Throws if the key has any value but this one.
  void expect(const char* key, const json& value) const {
    if (has(key) && at(key) != value) fail(fmt::format("'{}' must be {}, got {}", key, value.dump(), show(key)));
  }

  std::string show(const char* key) const { return at(key).dump(-1, ' ', false, json::error_handler_t::replace); }

  [[noreturn]] void fail(std::string_view what) const { throw Error(fmt::format("{}: {}", where_, what)); }

 private:
  std::string where_;
  json object_;
};

void refuse_what_we_cannot_do(const Reader& config) {
  if (!config.has("model_type")) config.fail("'model_type' is missing, expected \"qwen2\"");
  config.expect("model_type", "qwen2");
  config.expect("architectures", json::array({"Qwen2ForCausalLM"}));
  config.expect("hidden_act", "silu");
  config.expect("use_sliding_window", false);
  config.expect("attention_dropout", 0.0);
  if (config.has("layer_types")) {
    const json& types = config.at("layer_types");
    const bool known = types.is_array() && std::all_of(types.begin(), types.end(),
                                                       [](const json& type) { return type == "full_attention"; });
    if (!known)
      config.fail(
          fmt::format("'layer_types' must be a list of \"full_attention\", got {}", config.show("layer_types")));
  }
  for (const char* key : {"quantization_config", "rope_scaling"}) {
    if (config.has(key)) config.fail(fmt::format("'{}' is not supported", key));
  }
}

// Old files have rope_theta, new ones rope_parameters.rope_theta; ours have both.
double read_rope_theta(const Reader& config) {
  constexpr double kDefault = 10000;  // Qwen2Config's
  if (!config.has("rope_parameters")) return config.number("rope_theta", kDefault);
  const json& rope = config.at("rope_parameters");
  if (!rope.is_object()) config.fail("'rope_parameters' must be an object");
  for (const auto& [key, value] : rope.items()) {
    if (key == "rope_type" && value != "default") {
      config.fail(fmt::format("'rope_parameters.rope_type' must be \"default\", got {}", value.dump()));
    }
    if (key == "rope_theta" && !value.is_number()) config.fail("'rope_parameters.rope_theta' must be a number");
    if (key != "rope_type" && key != "rope_theta")
      config.fail(fmt::format("'rope_parameters.{}' is not supported", key));
  }
  const double theta = rope.value("rope_theta", config.number("rope_theta", kDefault));
  if (config.number("rope_theta", theta) != theta) config.fail("'rope_theta' and 'rope_parameters.rope_theta' differ");
  return theta;
}

}  // namespace

nlohmann::ordered_json config_object(const ModelConfig& c, std::string_view dtype,
                                     std::optional<uint32_t> end_of_text) {
  nlohmann::ordered_json object = {
      {"architectures", {"Qwen2ForCausalLM"}},
      {"model_type", "qwen2"},
      {"vocab_size", c.vocab},
      {"hidden_size", c.width},
      {"intermediate_size", c.mlp},
      {"num_hidden_layers", c.layers},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"max_position_embeddings", c.context},
      {"hidden_act", "silu"},
      {"rms_norm_eps", c.rms_eps},
      {"tie_word_embeddings", c.tied},
      {"rope_theta", c.rope_theta},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", c.rope_theta}}},
      {"attention_dropout", 0.0},
      {"use_sliding_window", false},
      {"initializer_range", 0.02},
      {"use_cache", true},
      {"torch_dtype", dtype},
      {"dtype", dtype},
  };
  if (end_of_text) object["eos_token_id"] = *end_of_text;
  return object;
}

std::string hugging_face_config(const ModelConfig& config) {
  return config_object(config, "float32", {}).dump(2) + "\n";
}

ModelConfig from_hugging_face_config(std::string_view text, std::string_view where) {
  const Reader config(text, where);
  refuse_what_we_cannot_do(config);
  ModelConfig c;
  c.vocab = config.integer("vocab_size");
  c.width = config.integer("hidden_size");
  c.mlp = config.integer("intermediate_size");
  c.layers = config.integer("num_hidden_layers");
  c.heads = config.integer("num_attention_heads");
  c.kv_heads = config.integer("num_key_value_heads", c.heads);
  c.head_dim = config.integer("head_dim", c.heads > 0 ? c.width / c.heads : 0);
  c.context = config.integer("max_position_embeddings", 32768);
  c.tied = config.boolean("tie_word_embeddings", false);
  c.rms_eps = config.number("rms_norm_eps", 1e-6);
  c.rope_theta = read_rope_theta(config);
  try {
    c.check();
  } catch (const Error& error) {
    config.fail(error.what());
  }
  return c;
}

}  // namespace prism::model
