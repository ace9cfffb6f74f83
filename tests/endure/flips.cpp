// Flips one bit at a random place of a run's checkpoint, token shards or exported model, reads it as the program does,
// and flips it back: prism_flips RUN MODEL COUNT SEED. A flip must be refused with an exception or change nothing that
// is read. Prints one JSON object; the exit status is 1 where a flip changed something unnoticed.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "prism/data/shards.h"
#include "prism/io/checkpoint.h"
#include "prism/io/hash.h"
#include "prism/model/hugging_face.h"
#include "prism/train/trainer.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Subject {
  std::string name;
  std::vector<fs::path> files;
  std::function<std::string()> read;  // returns the hash of all that is read; throws where it is refused
};

Subject checkpoint(const fs::path& run) {
  const auto parent = run / "checkpoints";
  const auto newest = *prism::io::latest_checkpoint(parent).path;
  Subject subject{"checkpoint", {}, [=] {
                    const auto latest = prism::io::latest_checkpoint(parent);
                    if (latest.path != newest) throw std::runtime_error(latest.skipped.front().reason);
                    std::string hashes;
                    for (const auto& [file, hash] : prism::io::verify_manifest(newest).files)
                      hashes += file + prism::io::hash_file(newest / file).xxh3;
                    return hashes;
                  }};
  for (const auto& entry : fs::directory_iterator(newest)) subject.files.push_back(entry.path());
  return subject;
}

Subject shards(const fs::path& run) {
  const auto folder = run / "data";
  Subject subject{"shards", {}, [=] {
                    prism::io::Hasher hasher;
                    for (const char* split : {"train", "val"}) {
                      const prism::data::Shards shards(folder, split, "");
                      shards.verify();
                      std::vector<int64_t> tokens(static_cast<size_t>(shards.tokens()));
                      shards.read(0, tokens);
                      hasher.update(prism::data::to_json(shards.identity()));
                      hasher.update({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int64_t)});
                    }
                    return hasher.digest();
                  }};
  for (const char* file : {"train.json", "val.json", "train_000000.bin", "val_000000.bin"})
    subject.files.push_back(folder / file);
  return subject;
}

Subject safetensors(const fs::path& model) {
  return {"safetensors", {model / "model.safetensors"}, [=] {
            return prism::train::weights_hash(prism::model::import_hugging_face(model).model);
          }};
}

void flip(const fs::path& path, uint64_t bit) {
  const prism::io::FileDescriptor file(path, O_RDWR);
  unsigned char byte = 0;
  const auto offset = static_cast<off_t>(bit / 8);
  if (::pread(file.get(), &byte, 1, offset) != 1) throw std::runtime_error(path.string() + ": cannot read");
  byte = static_cast<unsigned char>(byte ^ (1U << bit % 8));
  if (::pwrite(file.get(), &byte, 1, offset) != 1) throw std::runtime_error(path.string() + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::runtime_error("usage: prism_flips RUN MODEL COUNT SEED");
  const fs::path run = argv[1], model = argv[2];
  const auto count = std::stoll(argv[3]);
  std::mt19937_64 generator(std::stoull(argv[4]));
  const std::vector<Subject> subjects = {checkpoint(run), shards(run), safetensors(model)};
  std::vector<std::string> before;
  for (const auto& subject : subjects) before.push_back(subject.read());

  json tried = json::object(), failures = json::array();
  for (int64_t i = 0; i < count; ++i) {
    const auto which = generator() % subjects.size();
    const auto& subject = subjects[which];
    const auto& file = subject.files[generator() % subject.files.size()];
    const uint64_t bit = generator() % (8 * fs::file_size(file));
    flip(file, bit);
    std::string outcome = "detected";
    try {
      outcome = subject.read() == before[which] ? "harmless" : "unnoticed";
    } catch (const std::exception&) {
    }
    flip(file, bit);
    const auto key = fmt::format("{} {}", subject.name, outcome);
    tried[key] = tried.value(key, int64_t{0}) + 1;
    if (outcome == "unnoticed") failures.push_back(fmt::format("{}: bit {}", file.string(), bit));
  }
  std::cout << json{{"tried", tried}, {"failures", failures}}.dump() << '\n';
  return failures.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "prism_flips: " << error.what() << '\n';
  return 2;
}
