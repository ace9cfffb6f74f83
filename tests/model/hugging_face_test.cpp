#include "prism/model/hugging_face.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "prism/io/file.h"
#include "prism/model/weights.h"
#include "tests/close.h"
#include "tests/model/helpers.h"
#include "tests/text/small_tokenizer.h"

namespace prism::model {
namespace {

using io::contains;
using io::TemporaryFolder;
using Json = nlohmann::json;

ModelConfig with_vocab(int64_t vocab) {
  ModelConfig config = tiny();
  config.vocab = vocab;
  return config;
}

const text::Tokenizer kTokenizer(text::small_parts());  // 257 tokens

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

void expect_same_weights(const Qwen2& a, const Qwen2& b) {
  ASSERT_EQ(a.config(), b.config());
  for (size_t i = 0; i < a.named_parameters().size(); ++i) {
    EXPECT_SAME(a.named_parameters()[i].second, b.named_parameters()[i].second);
  }
}

TEST(Weights, AreTheSameBitsAfterSavingAndLoading) {
  const TemporaryFolder folder;
  for (const bool tied : {true, false}) {
    const Qwen2 model = random_model(tiny(tied));
    save_weights(model, folder / "model.safetensors");
    Qwen2 other(tiny(tied), 99);
    load_weights(other, folder / "model.safetensors");
    expect_same_weights(other, model);
    const auto tokens = random_tokens(tiny(), 2, 9);
    EXPECT_SAME(other.loss(tokens), model.loss(tokens));
  }
}

TEST(Weights, NameWhatDoesNotFitAndLeaveTheModelAsItWas) {
  const TemporaryFolder folder;
  const Qwen2 source = random_model(tiny(true), 3);
  save_weights(source, folder / "w");
  const auto message = [&](ModelConfig config) {
    Qwen2 model(config, 5);
    const std::string text = refusal([&] { load_weights(model, folder / "w"); });
    expect_same_weights(model, Qwen2(config, 5));
    return text;
  };
  ModelConfig config = tiny(false);
  EXPECT_TRUE(contains(message(config), "/w: 'lm_head.weight' is missing"));
  config = tiny();
  config.mlp = 54;
  EXPECT_TRUE(contains(message(config),
                       "'model.layers.0.mlp.gate_proj.weight' has the shape [52, 40], the model needs [54, 40]"));
  config = tiny();
  config.layers = 2;
  EXPECT_TRUE(contains(message(config), "'model.layers.2.input_layernorm.weight' is no parameter of the model"));
}

TEST(Weights, OfAnotherTypeAreRefused) {
  const TemporaryFolder folder;
  const Qwen2 model(tiny(), 1);
  std::vector<io::TensorView> views;
  std::vector<at::Tensor> kept;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const at::Tensor& t = kept.emplace_back(parameter.detach().to(at::kDouble));
    views.push_back({name, "F64", t.sizes().vec(), static_cast<const std::byte*>(t.data_ptr()), t.nbytes()});
  }
  io::write_safetensors(folder / "w", views, {});
  Qwen2 other(tiny(), 2);
  EXPECT_TRUE(
      contains(refusal([&] { load_weights(other, folder / "w"); }), "has the type F64, expected F32, BF16 or F16"));
}

TEST(HuggingFaceConfig, IsReadAsItWasWritten) {
  for (const auto& name : preset_names()) {
    ModelConfig config = preset(name);
    config.vocab = 12345;
    config.tied = name == "demo";
    config.rms_eps = 1e-5;
    config.rope_theta = 12345.5;
    EXPECT_EQ(from_hugging_face_config(hugging_face_config(config), "x"), config);
  }
}

TEST(HuggingFaceConfig, OldAndNewSpellingsAreRead) {
  Json object = Json::parse(hugging_face_config(tiny()));
  object.erase("rope_parameters");
  EXPECT_EQ(from_hugging_face_config(object.dump(), "x").rope_theta, 1e4);
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  object.erase("rope_theta");
  EXPECT_EQ(from_hugging_face_config(object.dump(), "x").rope_theta, 5e5);
}

TEST(HuggingFaceConfig, WhatIsLeftOutHasTransformersDefaults) {
  const ModelConfig config = from_hugging_face_config(
      R"({"model_type": "qwen2", "vocab_size": 10, "hidden_size": 24, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 4, "rope_scaling": null})",
      "x");
  const ModelConfig expected = {.vocab = 10,
                                .layers = 1,
                                .width = 24,
                                .heads = 4,
                                .kv_heads = 4,
                                .head_dim = 6,
                                .mlp = 8,
                                .context = 32768,
                                .tied = false,
                                .rope_theta = 1e4,
                                .rms_eps = 1e-6};
  EXPECT_EQ(config, expected);
}

TEST(HuggingFaceConfig, WhatTheModelCannotDoIsRefusedByName) {
  const auto message = [](const char* key, const Json& value) {
    Json object = Json::parse(hugging_face_config(tiny()));
    object[key] = value;
    return refusal([&] { from_hugging_face_config(object.dump(), "x/config.json"); });
  };
  EXPECT_EQ(message("model_type", "llama"), "x/config.json: 'model_type' must be \"qwen2\", got \"llama\"");
  EXPECT_EQ(message("model_type", nullptr), "x/config.json: 'model_type' is missing, expected \"qwen2\"");
  EXPECT_TRUE(contains(message("architectures", {"Qwen2Moe"}), "'architectures' must be"));
  EXPECT_TRUE(contains(message("hidden_act", "gelu"), "'hidden_act' must be \"silu\", got \"gelu\""));
  EXPECT_TRUE(contains(message("use_sliding_window", true), "'use_sliding_window' must be false"));
  EXPECT_TRUE(contains(message("attention_dropout", 0.1), "'attention_dropout' must be 0.0"));
  EXPECT_TRUE(contains(message("layer_types", {"full_attention", "sliding_attention"}), "\"sliding_attention\""));
  EXPECT_TRUE(contains(message("layer_types", "full_attention"), "'layer_types'"));
  EXPECT_TRUE(contains(message("rope_scaling", {{"type", "yarn"}}), "'rope_scaling' is not supported"));
  EXPECT_TRUE(contains(message("quantization_config", {{"bits", 4}}), "'quantization_config' is not supported"));
  EXPECT_TRUE(
      contains(message("rope_parameters", {{"rope_type", "yarn"}}), "'rope_parameters.rope_type' must be \"default\""));
  EXPECT_TRUE(contains(message("rope_parameters", {{"factor", 2}}), "'rope_parameters.factor' is not supported"));
  EXPECT_TRUE(contains(message("rope_parameters", 3), "'rope_parameters' must be an object"));
  EXPECT_TRUE(contains(message("rope_theta", 7.0), "'rope_theta' and 'rope_parameters.rope_theta' differ"));
  EXPECT_TRUE(contains(message("vocab_size", nullptr), "'vocab_size' is missing"));
  EXPECT_TRUE(contains(message("vocab_size", "many"), "'vocab_size' must be a whole number, got \"many\""));
  EXPECT_TRUE(contains(message("vocab_size", 1e30), "'vocab_size' must be a whole number"));
  EXPECT_TRUE(contains(message("rms_norm_eps", true), "'rms_norm_eps' must be a number"));
  EXPECT_TRUE(contains(message("tie_word_embeddings", 1), "'tie_word_embeddings' must be true or false"));
  EXPECT_TRUE(contains(message("num_key_value_heads", 3),
                       "x/config.json: model: heads (4) must be a multiple of kv_heads (3)"));
  EXPECT_TRUE(contains(message("num_attention_heads", 0), "heads must be between 1"));
  EXPECT_TRUE(contains(refusal([] { from_hugging_face_config("[]", "x"); }), "x: expected a JSON object"));
  EXPECT_TRUE(contains(refusal([] { from_hugging_face_config("{", "x"); }), "x: invalid JSON"));
}

TEST(HuggingFaceFolder, ComesBackTheSame) {
  const TemporaryFolder folder;
  for (const bool tied : {true, false}) {
    ModelConfig config = with_vocab(300);
    config.tied = tied;
    const Qwen2 model = random_model(config);
    const auto target = folder / (tied ? "tied" : "untied");
    export_hugging_face(model, kTokenizer, target);
    const Imported imported = import_hugging_face(target);
    expect_same_weights(imported.model, model);
    EXPECT_EQ(imported.tokenizer.hash(), kTokenizer.hash());
  }
  EXPECT_EQ(folder.entries(), 2);
}

TEST(HuggingFaceFolder, IsWrittenWhollyOrNotAtAll) {
  const TemporaryFolder folder;
  const Qwen2 model(with_vocab(300), 1);
  std::filesystem::create_directory(folder / "empty");
  export_hugging_face(model, kTokenizer, folder / "empty/");
  EXPECT_TRUE(std::filesystem::exists(folder / "empty/model.safetensors"));
  EXPECT_TRUE(contains(refusal([&] { export_hugging_face(model, kTokenizer, folder / "empty"); }),
                       "expected a new or empty folder"));
  write(folder / "file", "x");
  EXPECT_TRUE(contains(refusal([&] { export_hugging_face(model, kTokenizer, folder / "file"); }),
                       "expected a new or empty folder"));
  EXPECT_TRUE(
      contains(refusal([&] { export_hugging_face(model, kTokenizer, folder / "file/hf"); }), "cannot make the folder"));
  EXPECT_TRUE(contains(refusal([&] { export_hugging_face(Qwen2(with_vocab(256), 1), kTokenizer, folder / "small"); }),
                       "the tokenizer has 257 tokens, the model's embedding 256 rows"));
  EXPECT_EQ(folder.entries(), 2);
}

TEST(HuggingFaceFolder, WhatIsMissingOrBrokenIsNamed) {
  const TemporaryFolder folder;
  const auto message = [&] { return refusal([&] { import_hugging_face(folder / "hf"); }); };
  EXPECT_TRUE(contains(message(), "/hf: cannot open: No such file"));
  export_hugging_face(Qwen2(with_vocab(300), 1), kTokenizer, folder / "hf");
  EXPECT_EQ(message(), "nothing was thrown");
  std::filesystem::rename(folder / "hf/model.safetensors", folder / "hf/part");
  EXPECT_TRUE(contains(message(), "has neither model.safetensors nor model.safetensors.index.json"));
  const auto index = [&](const std::string& text) {
    write(folder / "hf/model.safetensors.index.json", text);
    return message();
  };
  EXPECT_EQ(index(R"({"weight_map": {"a": "part"}})"), "nothing was thrown");
  EXPECT_TRUE(contains(index("{}"), "expected an object 'weight_map'"));
  EXPECT_TRUE(contains(index(R"({"weight_map": {"a": 1}})"), "'weight_map.a' must be the name of a file"));
  EXPECT_TRUE(contains(index(R"({"weight_map": {"a": "../part"}})"), "'../part' must be in the same folder"));
  EXPECT_TRUE(contains(index(R"({"weight_map": {"a": "gone"}})"), "hf/gone: cannot open: No such file"));
  std::filesystem::copy(folder / "hf/part", folder / "hf/twin");
  EXPECT_TRUE(contains(index(R"({"weight_map": {"a": "part", "b": "twin"}})"), "is in part too"));
  std::filesystem::remove(folder / "hf/config.json");
  EXPECT_TRUE(contains(message(), "hf/config.json: cannot open: No such file"));
}

}  // namespace
}  // namespace prism::model
