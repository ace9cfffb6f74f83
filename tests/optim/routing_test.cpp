// The routing of parameters to optimizers, and Mixed.

#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

using Shape = std::vector<int64_t>;

NamedTensors model(const std::vector<std::pair<std::string, Shape>>& shapes) {
  NamedTensors parameters;
  for (const auto& [name, shape] : shapes) parameters.emplace_back(name, parameter(torch::zeros(shape)));
  return parameters;
}

// Returns the label of the default rule that matches a parameter.
std::string label(const std::string& name, const Shape& shape) {
  const Routing routing(default_rules(PrismOptions(), AdamWOptions()), model({{name, shape}}));
  return routing.rules()[routing.lines()[0].rule].label;
}

struct Expectation {
  const char* name;
  Shape shape;
  const char* label;
};

void expect_labels(const std::vector<Expectation>& list) {
  for (const auto& [name, shape, expected] : list) EXPECT_EQ(label(name, shape), expected) << name;
}

TEST(DefaultRules, KnowGpt2) {
  expect_labels({{"transformer.wte.weight", {50257, 768}, "embedding"},
                 {"transformer.wpe.weight", {1024, 768}, "embedding"},
                 {"transformer.h.0.ln_1.weight", {768}, "vector"},
                 {"transformer.h.0.attn.c_attn.weight", {768, 2304}, "hidden matrix"},
                 {"transformer.h.0.attn.c_attn.bias", {2304}, "vector"},
                 {"transformer.h.0.attn.c_proj.weight", {768, 768}, "hidden matrix"},
                 {"transformer.h.11.mlp.c_fc.weight", {768, 3072}, "hidden matrix"},
                 {"transformer.ln_f.bias", {768}, "vector"},
                 {"lm_head.weight", {50257, 768}, "head"}});
}

TEST(DefaultRules, KnowLlamaAndQwen2) {
  expect_labels({{"model.embed_tokens.weight", {151936, 896}, "embedding"},
                 {"model.layers.0.self_attn.q_proj.weight", {896, 896}, "hidden matrix"},
                 {"model.layers.0.self_attn.q_proj.bias", {896}, "vector"},
                 {"model.layers.0.self_attn.k_proj.weight", {128, 896}, "hidden matrix"},
                 {"model.layers.0.self_attn.o_proj.weight", {896, 896}, "hidden matrix"},
                 {"model.layers.0.mlp.gate_proj.weight", {4864, 896}, "hidden matrix"},
                 {"model.layers.23.mlp.down_proj.weight", {896, 4864}, "hidden matrix"},
                 {"model.layers.0.input_layernorm.weight", {896}, "vector"},
                 {"model.norm.weight", {896}, "vector"},
                 {"lm_head.weight", {151936, 896}, "head"},
                 {"tok_embeddings.weight", {32000, 4096}, "embedding"},
                 {"layers.0.feed_forward.w1.weight", {11008, 4096}, "hidden matrix"},
                 {"layers.0.attention.wo.weight", {4096, 4096}, "hidden matrix"},
                 {"output.weight", {32000, 4096}, "head"},
                 {"model.layers.0.block_sparse_moe.experts.gate_up_proj", {8, 1024, 512}, "hidden matrix"}});
}

TEST(DefaultRules, KnowBert) {
  expect_labels({{"bert.embeddings.word_embeddings.weight", {30522, 768}, "embedding"},
                 {"bert.embeddings.position_embeddings.weight", {512, 768}, "embedding"},
                 {"bert.embeddings.LayerNorm.weight", {768}, "vector"},
                 {"bert.encoder.layer.0.attention.self.query.weight", {768, 768}, "hidden matrix"},
                 {"bert.encoder.layer.0.attention.output.dense.weight", {768, 768}, "hidden matrix"},
                 {"bert.encoder.layer.0.output.dense.weight", {768, 3072}, "hidden matrix"},
                 {"bert.encoder.layer.0.output.LayerNorm.weight", {768}, "vector"},
                 {"bert.pooler.dense.weight", {768, 768}, "hidden matrix"},
                 {"classifier.weight", {2, 768}, "head"}});
}

TEST(DefaultRules, KnowConvolutionalNetworks) {
  expect_labels({{"conv1.weight", {64, 3, 7, 7}, "hidden matrix"},
                 {"bn1.weight", {64}, "vector"},
                 {"layer1.0.conv1.weight", {64, 64, 3, 3}, "hidden matrix"},
                 {"layer1.0.downsample.0.weight", {256, 64, 1, 1}, "hidden matrix"},
                 {"layer4.2.bn3.bias", {512}, "vector"},
                 {"fc.weight", {1000, 2048}, "head"},
                 {"fc.bias", {1000}, "vector"},
                 {"blocks.0.mlp.fc.weight", {64, 64}, "hidden matrix"},
                 {"patch_embed.proj.weight", {768, 3, 16, 16}, "embedding"},
                 {"cls_token", {1, 1, 768}, "vector"},
                 {"heads.head.weight", {1000, 768}, "head"}});
}

TEST(DefaultRules, KnowShortNamesOfEmbeddings) {
  expect_labels({{"emb.weight", {50277, 768}, "embedding"},
                 {"tok_emb.weight", {32000, 64}, "embedding"},
                 {"pos_emb.weight", {128, 64}, "embedding"},
                 {"assembly.weight", {32, 64}, "hidden matrix"},
                 {"embedding", {32, 64}, "embedding"}});
}

TEST(DefaultRules, GoByTheModuleThatHoldsAWeightNotByThoseAroundIt) {
  expect_labels({{"encoder.layers.0.pos_ffn.w_1.weight", {2048, 512}, "hidden matrix"},
                 {"encoder.layers.0.positionwise_feedforward.fc_1.weight", {512, 256}, "hidden matrix"},
                 {"encoder.layers.0.attention.self.pos_key_proj.weight", {768, 768}, "hidden matrix"},
                 {"embedder.layers.0.fc.weight", {64, 32}, "hidden matrix"},
                 {"resnet.embedder.embedder.convolution.weight", {64, 3, 7, 7}, "hidden matrix"},
                 {"embeddings_project.weight", {256, 128}, "hidden matrix"},
                 {"embedder.word_embeddings.weight", {1000, 64}, "embedding"},
                 {"attn.relative_position_bias_table", {169, 3}, "embedding"},
                 {"attn.rel_pos.relative_position_bias_table", {2, 13, 13}, "embedding"},
                 {"attn.rel_pos_h", {27, 64}, "embedding"},
                 {"embeddings.register_tokens", {1, 4, 768}, "embedding"},
                 {"mixer.A_log", {1536, 16}, "recurrence"}});
}

TEST(DefaultRules, KnowHeadsByNameWhereNoBlockIsAroundThem) {
  expect_labels({{"fc_out.weight", {1000, 64}, "head"},
                 {"decoder.fc_out.weight", {1000, 64}, "head"},
                 {"logits.weight", {1000, 64}, "head"},
                 {"out.weight", {1000, 64}, "head"},
                 {"decode_head.classifier.weight", {150, 256, 1, 1}, "head"},
                 {"head.fc.weight", {1000, 768}, "head"},
                 {"transformer.h.0.mlp.fc_out.weight", {64, 256}, "hidden matrix"},
                 {"layers.0.attention.out.weight", {64, 64}, "hidden matrix"},
                 {"blocks.0.attention.output.weight", {64, 64}, "hidden matrix"},
                 {"pre_classifier.weight", {768, 768}, "hidden matrix"},
                 {"conv_head.weight", {1280, 320, 1, 1}, "hidden matrix"}});
}

TEST(DefaultRules, TakeDepthwiseConvolutionsFromTheMatrixMethods) {
  expect_labels({{"stages.0.dwconv.weight", {96, 1, 7, 7}, "depthwise"},
                 {"mixer.conv1d.weight", {1536, 1, 4}, "depthwise"},
                 {"conv.weight", {96, 4, 3, 3}, "hidden matrix"}});
}

// Returns the labels of a whole model.
std::vector<std::string> labels(const std::vector<std::pair<std::string, Shape>>& shapes, const Rules& rules) {
  const Routing routing(rules, model(shapes));
  std::vector<std::string> list;
  for (const auto& line : routing.lines()) list.push_back(rules[line.rule].label);
  return list;
}

TEST(DefaultRules, TakeTheLastMatrixAsTheOutputLayerWhereNothingTakesWhatItGives) {
  const auto rules = default_rules(PrismOptions(), AdamWOptions());
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels({{"a.weight", {64, 32}}, {"b.weight", {10, 64}}, {"b.bias", {10}}}, rules),
            (Labels{"hidden matrix", "last layer", "vector"}));
  // The output is used by the first matrix, by a norm, by stacked experts; or it is the only matrix.
  EXPECT_EQ(labels({{"a.weight", {64, 10}}, {"b.weight", {10, 64}}}, rules),
            (Labels{"hidden matrix", "hidden matrix"}));
  EXPECT_EQ(labels({{"a.weight", {64, 32}}, {"b.weight", {10, 64}}, {"n.weight", {10}}}, rules),
            (Labels{"hidden matrix", "hidden matrix", "vector"}));
  EXPECT_EQ(labels({{"experts.up", {8, 64, 10}}, {"b.weight", {10, 64}}}, rules),
            (Labels{"hidden matrix", "hidden matrix"}));
  EXPECT_EQ(labels({{"b.weight", {10, 64}}, {"b.bias", {10}}}, rules), (Labels{"hidden matrix", "vector"}));
  // The keys of grouped attention have no user either, but are not last; a head known by name keeps its label.
  EXPECT_EQ(labels({{"k.weight", {16, 64}}, {"o.weight", {64, 64}}, {"lm_head.weight", {10, 64}}}, rules),
            (Labels{"hidden matrix", "hidden matrix", "head"}));
  EXPECT_EQ(labels({{"a.weight", {64, 32}}, {"b.weight", {10, 64}}, {"pos.weight", {99, 64}}}, rules),
            (Labels{"hidden matrix", "last layer", "embedding"}));
}

TEST(DefaultRules, TakeAHeadWithOneOutputAsTheOutputLayer) {
  const auto rules = default_rules(PrismOptions(), AdamWOptions());
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels({{"a.weight", {64, 32}}, {"b.weight", {64, 64}}, {"c.weight", {1, 64}}}, rules),
            (Labels{"hidden matrix", "hidden matrix", "vector"}));
  EXPECT_EQ(labels({{"trunk.weight", {64, 32}}, {"policy.weight", {6, 64}}, {"value.weight", {1, 64}}}, rules),
            (Labels{"hidden matrix", "last layer", "vector"}));
  // Tables with one row and rows that are no weights take nothing.
  EXPECT_EQ(
      labels({{"embed.weight", {1, 10}}, {"cls", {1, 1, 10}}, {"a.weight", {64, 32}}, {"b.weight", {10, 64}}}, rules),
      (Labels{"vector", "vector", "hidden matrix", "last layer"}));
}

TEST(DefaultRules, TakeTheHeadsTheyAreTold) {
  using Labels = std::vector<std::string>;
  const std::vector<std::pair<std::string, Shape>> shapes = {
      {"generator.0.weight", {64, 32}}, {"lm_head.weight", {10, 64}}, {"b.weight", {7, 64}}};
  const auto rules = [](const std::vector<std::string>& heads) {
    return default_rules(PrismOptions(), AdamWOptions(), heads);
  };
  EXPECT_EQ(labels(shapes, rules({"generator"})), (Labels{"head", "hidden matrix", "hidden matrix"}));
  EXPECT_EQ(labels(shapes, rules({"b.weight", "lm_head"})), (Labels{"hidden matrix", "head", "head"}));
  EXPECT_EQ(labels(shapes, rules({})), (Labels{"hidden matrix", "hidden matrix", "hidden matrix"}));
  EXPECT_EQ(
      message_of([&] { labels(shapes, rules({"gen"})); }),
      "routing: the head 'gen' must be the name of a parameter or of a module with parameters, as the table gives "
      "them");
}

TEST(DefaultRules, TakeRowsAndColumnsAsVectors) {
  expect_labels({{"gate", {1, 64}, "vector"},
                 {"gate", {64, 1}, "vector"},
                 {"gate", {}, "vector"},
                 {"gate", {2, 64}, "hidden matrix"}});
}

Rule rule(const std::string& name, const std::string& pattern, std::shared_ptr<const Options> options) {
  Rule result;
  result.label = name;
  result.pattern = pattern;
  result.options = std::move(options);
  return result;
}

TEST(Routing, TheFirstMatchWins) {
  const std::shared_ptr<const Options> options = AdamWOptions().copy();
  const auto parameters = model({{"a.weight", {4, 4}}, {"b.weight", {4, 4}}});
  const Routing routing({rule("one", "^a", options), rule("two", "weight", options), rule("three", "", options)},
                        parameters);
  EXPECT_EQ(routing.lines()[0].rule, 0);
  EXPECT_EQ(routing.lines()[1].rule, 1);
}

using Names = std::vector<std::string>;

TEST(PlainNames, AreThoseOfTheModelWithoutItsWrappers) {
  const Names plain = {"fc.weight", "blocks.0.w"};
  EXPECT_EQ(plain_names(plain), plain);
  EXPECT_EQ(plain_names({"module.fc.weight", "module.blocks.0.w"}), plain);
  EXPECT_EQ(plain_names({"_orig_mod.module.fc.weight", "_orig_mod.module.blocks.0.w"}), plain);
  EXPECT_EQ(plain_names({"fc._orig_mod.weight", "blocks.0._checkpoint_wrapped_module.w"}), plain);
  EXPECT_EQ(plain_names({"_fsdp_wrapped_module.fc.weight", "blocks._fsdp_wrapped_module.0.module.w"}), plain);
  EXPECT_EQ(plain_names({"fc.module", "modules.w", "module"}), (Names{"fc.module", "modules.w", "module"}));
  EXPECT_EQ(plain_names({}), Names());
}

TEST(PlainNames, StayUniqueBesideASubmoduleCalledModule) {
  const Names nested = {"module.fc.weight", "fc.weight", "module.head.weight"};
  EXPECT_EQ(plain_names(nested), (Names{"module.fc.weight", "fc.weight", "head.weight"}));
  const Names wrapped = {"module.module.fc.weight", "module.fc.weight", "module.module.head.weight"};
  EXPECT_EQ(plain_names(wrapped), plain_names(nested));
  EXPECT_EQ(plain_names(plain_names(wrapped)), plain_names(wrapped));
}

TEST(Routing, DoesNotDependOnWrappers) {
  for (const char* name : {"fc.weight", "module.fc.weight", "_orig_mod.fc.weight"}) {
    EXPECT_EQ(label(name, {10, 64}), "head") << name;
  }
  EXPECT_EQ(label("wte.module.weight", {10, 64}), "embedding");
}

TEST(Routing, RefusesFlatParameters) {
  EXPECT_EQ(
      message_of([] { label("_fsdp_wrapped_module._flat_param", {4096}); }),
      "routing: '_fsdp_wrapped_module._flat_param' is a flat parameter of FullyShardedDataParallel, which hides the "
      "matrices in one vector; use DistributedDataParallel");
}

TEST(Routing, PrintsItsTable) {
  const Mixed optimizer(model({{"wte.weight", {50257, 32}}, {"h.0.w", {64, 32}}, {"h.0.scale", {}}, {"h.0.b", {64}}}),
                        PrismOptions(), AdamWOptions());
  std::ostringstream text;
  text << optimizer.routing();
  EXPECT_EQ(text.str(),
            "parameter   shape       rule           optimizer\n"
            "wte.weight  50257 × 32  embedding      adamw\n"
            "h.0.w       64 × 32     hidden matrix  prism\n"
            "h.0.scale   scalar      vector         adamw\n"
            "h.0.b       64          vector         adamw\n"
            "adamw: 1,608,289 elements in 3 parameters\n"
            "prism: 2,048 elements in 1 parameter\n");
}

template <class Chosen>
Chosen recommended(Chosen options) {
  options.use_mixed_defaults();
  return options;
}

TEST(Mixed, HasTheRecommendedSettingUnlessOptionsAreSet) {
  const NamedTensors parameters = {{"w", parameter(random({6, 4}, 1))}, {"b", parameter(random({6}, 2))}};
  Mixed usual(parameters, PrismOptions(), AdamWOptions());
  const auto matrices = usual.group_options(0).to_json(), rest = usual.group_options(1).to_json();
  EXPECT_EQ(matrices["lr"], 0.005);
  EXPECT_EQ(matrices["gamma"], 0.17);
  EXPECT_EQ(matrices["side"], "whitened");
  EXPECT_EQ(matrices["root_every"], 16);
  EXPECT_EQ(matrices["covariance"], "ema");
  EXPECT_EQ(matrices["coefficients"], "minimax9");
  EXPECT_EQ(matrices["normalize"], "rows");
  EXPECT_EQ(rest["lr"], 0.02);

  const auto own = PrismOptions(0.02)
                       .gamma(1)
                       .side(Side::Short)
                       .covariance(CovarianceKind::Instant)
                       .coefficients("jordan")
                       .normalize(Normalize::None);
  Mixed chosen(parameters, own, AdamWOptions(1e-3));
  EXPECT_EQ(chosen.group_options(0).to_json(), PrismOptions().to_json()) << "defaults of Prism, but set";
  EXPECT_EQ(chosen.group_options(1).to_json()["lr"], 1e-3);
  Mixed exact(parameters, PrismOptions().solver(Solver::Exact), AdamWOptions());  // the polynomial is not the user's
  exact.group_options(0).check();
}

TEST(Mixed, StepsAsTwoSeparateOptimizers) {
  const NamedTensors mixed = {{"embed.weight", parameter(random({9, 6}, 1))},
                              {"w1", parameter(random({6, 6}, 2))},
                              {"b1", parameter(random({6}, 3))},
                              {"w2", parameter(random({6, 6}, 4))}};
  const auto apart = copy_of(mixed);
  const auto adamw = AdamWOptions(0.05).betas({0.9, 0.99});
  Mixed optimizer(mixed, PrismOptions(0.1).weight_decay(0.1), adamw);
  Prism matrices(NamedTensors{apart[1], apart[3]}, recommended(PrismOptions(0.1).weight_decay(0.1)));
  AdamW rest(NamedTensors{apart[0], apart[2]}, adamw);
  for (int64_t t = 1; t <= 5; ++t) {
    set_gradients(mixed, t);
    set_gradients(apart, t);
    optimizer.step();
    matrices.step();
    rest.step();
  }
  expect_equal_weights(mixed, apart);
  EXPECT_EQ(optimizer.names(), (std::vector<std::vector<std::string>>{{"w1", "w2"}, {"embed.weight", "b1"}}));
  EXPECT_EQ(optimizer.group_options(0).name(), "prism");
  EXPECT_EQ(optimizer.group_options(1).name(), "adamw");
}

TEST(Mixed, OfSeveralProcessesStepsItsOwnParametersOnly) {
  const NamedTensors whole = {{"embed.weight", parameter(random({9, 6}, 1))},
                              {"w1", parameter(random({6, 6}, 2))},
                              {"b1", parameter(random({6}, 3))},
                              {"w2", parameter(random({6, 6}, 4))}};
  const auto shared = copy_of(whole);
  const auto rules = default_rules(PrismOptions(0.1).weight_decay(0.1), AdamWOptions(0.05));
  Mixed one(whole, rules);
  std::vector<std::unique_ptr<Mixed>> owners;  // the second has matrices only, the third has nothing
  for (const auto& flags : std::vector<std::vector<bool>>{
           {true, true, true, false}, {false, false, false, true}, {false, false, false, false}}) {
    std::vector<Tensor> here;
    for (size_t p = 0; p < flags.size(); ++p) here.push_back(flags[p] ? shared[p].second : Tensor());
    owners.push_back(std::make_unique<Mixed>(shared, rules, here));
  }
  for (int64_t t = 1; t <= 3; ++t) {
    set_gradients(whole, t);
    set_gradients(shared, t);
    one.step();
    for (const auto& owner : owners) owner->step();
  }
  for (size_t p = 0; p < whole.size(); ++p) EXPECT_CLOSE(shared[p].second, whole[p].second, 1e-12);
  for (const auto& owner : owners) {
    EXPECT_EQ(owner->param_groups().size(), 2);
    EXPECT_EQ(owner->routing().lines().size(), 4);
  }
  EXPECT_EQ(owners[1]->names(), (std::vector<std::vector<std::string>>{{"w2"}, {}}));
}

TEST(Mixed, StepsPartsOfTheMemoryOfAParameterBitForBit) {
  const auto make = [] { return NamedTensors{{"embed.weight", parameter(random({300, 48}, 1).to(torch::kFloat32))}}; };
  const auto whole = make(), shared = make();
  const auto rules = default_rules(PrismOptions(0.1), AdamWOptions(0.05).weight_decay(0.1));
  Mixed one(whole, rules);
  std::vector<Tensor> parts;
  std::vector<std::unique_ptr<Mixed>> owners;
  for (const auto& [begin, size] : std::vector<std::pair<int64_t, int64_t>>{{0, 1024}, {1024, 8192}, {9216, 5184}}) {
    parts.push_back(shared[0].second.detach().view(-1).narrow(0, begin, size));
    owners.push_back(std::make_unique<Mixed>(shared, rules, std::vector<Tensor>{parts.back()}));
  }
  for (int64_t t = 1; t <= 3; ++t) {
    const Tensor G = random({300, 48}, static_cast<uint64_t>(10 + t)).to(torch::kFloat32);
    whole[0].second.mutable_grad() = G;
    one.step();
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].mutable_grad() = G.view(-1).narrow(0, parts[i].storage_offset(), parts[i].numel());
      owners[i]->step();
    }
  }
  EXPECT_TRUE(shared[0].second.equal(whole[0].second));
}

TEST(Mixed, ReportsEachParameterOnceItsWeightsAreWritten) {
  const NamedTensors all = {{"embed.weight", parameter(random({9, 6}, 1))},
                            {"w1", parameter(random({6, 6}, 2))},
                            {"unused", parameter(random({6, 6}, 5))},
                            {"b1", parameter(random({6}, 3))},
                            {"w2", parameter(random({6, 4}, 4))}};
  Mixed optimizer(all, PrismOptions(0.1), AdamWOptions(0.05));
  set_gradients(all, 1);
  const auto before = copy_of(all);
  const_cast<Tensor&>(all[2].second).mutable_grad() = Tensor();
  std::vector<std::string> written;
  optimizer.step_if(torch::ones({}, torch::kBool), [&](const Tensor& stepped) {
    for (size_t p = 0; p < all.size(); ++p) {
      if (!all[p].second.is_same(stepped)) continue;
      written.push_back(all[p].first);
      EXPECT_FALSE(stepped.equal(before[p].second)) << all[p].first;
    }
  });
  EXPECT_EQ(written, (std::vector<std::string>{"embed.weight", "b1", "w1", "w2"}));  // matrices last
}

TEST(Mixed, GivesAdamWTheBetasOfLanguageModelsUnlessTheyAreSet) {
  using Betas = std::pair<double, double>;
  const auto parameters = model({{"embed.weight", {8, 4}}, {"layer.weight", {4, 4}}});
  const auto betas = [&](const Options& matrices, const Options& rest) {
    const Mixed mixed(parameters, matrices, rest);
    std::vector<Betas> list;
    for (size_t group = 0; group < mixed.param_groups().size(); ++group)
      list.push_back(dynamic_cast<const AdamWOptions&>(mixed.group_options(group)).betas());
    return list;
  };
  EXPECT_EQ(betas(AdamWOptions(), AdamWOptions()), (std::vector<Betas>{{0.9, 0.95}, {0.9, 0.95}}));
  EXPECT_EQ(betas(AdamWOptions().betas({0.9, 0.999}), AdamWOptions()), (std::vector<Betas>{{0.9, 0.999}, {0.9, 0.95}}));
  const auto from_json = make_options("adamw", {{"betas", {0.9, 0.999}}});
  EXPECT_EQ(betas(AdamWOptions(), *from_json), (std::vector<Betas>{{0.9, 0.95}, {0.9, 0.999}}));
  EXPECT_EQ(AdamWOptions().betas(), Betas(0.9, 0.999)) << "alone it is torch's";
}

TEST(Mixed, ResumesBitForBitInAnyOrder) {
  NamedTensors parameters = {{"embed.weight", parameter(random({9, 6}, 1))},
                             {"w1", parameter(random({6, 6}, 2))},
                             {"b1", parameter(random({6}, 3))},
                             {"w2", parameter(random({6, 6}, 4))}};
  Mixed original(parameters, PrismOptions(0.1), AdamWOptions(0.05));
  set_gradients(parameters, 1);
  original.step();
  NamedTensors copies = copy_of(parameters);
  std::reverse(copies.begin(), copies.end());
  Mixed resumed(copies, PrismOptions(9), AdamWOptions(9));
  std::stringstream stream;
  torch::save(original, stream);
  torch::load(resumed, stream);
  set_gradients(parameters, 2);
  set_gradients(copies, 2);
  original.step();
  resumed.step();
  expect_equal_weights(copies, parameters);
}

TEST(Mixed, TakesTheUsersRulesWithASplit) {
  const std::shared_ptr<const Options> fused = PrismOptions(0.1).split({4, 2, 2}).copy();
  const std::shared_ptr<const Options> plain = MuonOptions(0.2).copy();
  const std::shared_ptr<const Options> rest = AdamWOptions(0.05).copy();
  Rule vectors = rule("vector", ".*", rest);
  vectors.max_dimensions = 1;
  const NamedTensors parameters = {
      {"qkv", parameter(random({8, 6}, 1))}, {"out", parameter(random({6, 6}, 2))}, {"b", parameter(random({6}, 3))}};
  Mixed optimizer(parameters, {rule("fused", "qkv", fused), vectors, rule("other", ".*", plain)});
  EXPECT_EQ(optimizer.names(), (std::vector<std::vector<std::string>>{{"qkv"}, {"out"}, {"b"}}));
  const auto apart = copy_of(parameters);
  Prism prism(NamedTensors{apart[0]}, recommended(PrismOptions(0.1).split({4, 2, 2})));
  Muon muon(NamedTensors{apart[1]}, MuonOptions(0.2));
  AdamW adamw(NamedTensors{apart[2]}, recommended(AdamWOptions(0.05)));
  set_gradients(parameters, 1);
  set_gradients(apart, 1);
  optimizer.step();
  prism.step();
  muon.step();
  adamw.step();
  expect_equal_weights(parameters, apart);
}

TEST(Mixed, TakesAWholeModule) {
  torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::ReLU(), torch::nn::Linear(7, 2));
  Mixed optimizer(net->named_parameters(), PrismOptions(0.02), AdamWOptions(0.01));
  const auto x = random({32, 5}, 1, torch::kFloat32);
  const auto loss = [&] { return (net->forward(x) - x.narrow(1, 0, 2)).square().mean(); };
  const double before = loss().item<double>();
  for (int64_t t = 0; t < 50; ++t) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }
  EXPECT_LT(loss().item<double>(), 0.5 * before);
}

}  // namespace
}  // namespace prism::test
