#pragma once

#include <random>

#include "prism/io/atomic_file.h"
#include "prism/train/config.h"
#include "prism/train/dataset.h"
#include "tests/io/temporary_folder.h"

// A small corpus, model and configuration that every test here can train within a second.
class SmallRun {
 public:
  SmallRun() {
    static constexpr const char* kWords[] = {"the",  "small", "large", "cat", "dog",
                                             "tree", "sees",  "likes", "and", "then"};
    std::mt19937 generator(1);
    std::filesystem::create_directories(folder.path() / "text");
    for (int document = 0; document < 20; ++document) {
      std::string text;
      for (int i = 0; i < 200; ++i) text += std::string(kWords[generator() % std::size(kWords)]) + " ";
      prism::io::write_file_atomically(folder.path() / "text" / (std::to_string(document) + ".txt"), text);
    }
  }

  prism::io::Config config(const std::vector<std::string>& settings = {}) const {
    auto config = prism::train::make_config();
    config.read_toml(R"(
model = {preset = "demo", layers = 2, width = 32, heads = 4, kv_heads = 2, mlp = 48}
data = {vocab = 280, held_out = 0.1}
train = {steps = 12, batch = 4, context = 16, eval_every = 4, eval_sequences = 7}
schedule = {warmup = 2}
checkpoint = {every = 4}
run = {device = "cpu", threads = 1}
)",
                     "test");
    config.assign("data.path", {(folder.path() / "text").string()}, "test");
    config.assign("run.out", (folder.path() / "run").string(), "test");
    for (const auto& setting : settings) config.set(setting);
    return config;
  }

  prism::train::Dataset dataset() const { return prism::train::open_dataset(config(), folder.path() / "data"); }

  prism::io::TemporaryFolder folder;
};
