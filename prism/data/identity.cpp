#include "prism/data/identity.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "prism/data/bytes.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/hash.h"
#include "prism/io/json.h"

namespace prism::data {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "prism-shards";
constexpr int64_t kVersion = 1;
constexpr size_t kHashReadBytes = size_t{1} << 20;
constexpr const char* kHash = "xxh3";

std::string hash_file(const fs::path& path, std::string& buffer, const std::function<void(uint64_t)>& advance) {
  io::Hasher hasher;
  const auto bytes = open_file(path);
  for (size_t got = buffer.size(); got == buffer.size();) {
    got = bytes->read(buffer);
    hasher.update(std::string_view(buffer).substr(0, got));
    advance(got);
  }
  return hasher.digest();
}

// The hash of all members except the hash itself, in the order of their names.
std::string hash_of(nlohmann::json json) {
  json.erase(kHash);
  return io::hash_bytes(json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace));
}

template <typename T>
T field(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(fmt::format("{}: expected the key \"{}\", found none", where, key));
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("{}: unexpected value of \"{}\": {}", where, key, found->dump()));
  }
}

int64_t count(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto value = field<nlohmann::json>(object, key, where);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    throw Error(fmt::format("{}: expected a whole number as \"{}\", got {}", where, key, value.dump()));
  }
  return value.get<int64_t>();
}

}  // namespace

std::vector<Source> hash_sources(const Corpus& corpus, const std::function<void(uint64_t)>& advance) {
  std::vector<Source> sources;
  std::string buffer(kHashReadBytes, '\0');
  uint64_t done = 0;
  const auto count_bytes = [&](uint64_t bytes) {
    done += bytes;
    if (advance) advance(done);
  };
  for (const Corpus::Root& root : corpus.roots()) {
    Source source{root.path, static_cast<int64_t>(root.files.size()), 0, {}, 0};
    io::Hasher folder;
    for (const CorpusFile& file : root.files) {
      source.hash = hash_file(file.path, buffer, count_bytes);
      source.bytes += file.bytes;
      folder.update(fmt::format("{}\n{}\n{}\n", file.name, file.bytes, source.hash));
    }
    if (fs::is_directory(root.path)) source.hash = folder.digest();
    sources.push_back(std::move(source));
  }
  return sources;
}

fs::path identity_path(const fs::path& folder, std::string_view split) {
  return folder / fmt::format("{}.json", split);
}

std::string to_json(const Identity& identity) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"split", identity.split},
            {"tokenizer", identity.tokenizer_hash},
            {"vocab_size", identity.vocab_size},
            {"end_of_text", identity.end_of_text},
            {"documents", identity.documents},
            {"tokens", identity.tokens},
            {"text_bytes", identity.text_bytes},
            {"recipe", identity.recipe}};
  json["sources"] = Json::array();
  for (const Source& source : identity.sources) {
    json["sources"].push_back({{"path", source.path},
                               {"files", source.files},
                               {"bytes", source.bytes},
                               {"xxh3", source.hash},
                               {"tokens", source.tokens}});
  }
  json["shards"] = Json::array();
  for (const ShardEntry& shard : identity.shards) {
    json["shards"].push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"xxh3", shard.hash}});
  }
  json[kHash] = hash_of(json);
  // A path need not be UTF-8.
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Identity identity_from_json(std::string_view text, std::string_view where) {
  const nlohmann::json json = io::parse_json(text, where);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    throw Error(fmt::format("{}: expected the identity of token shards (\"format\": \"{}\")", where, kFormat));
  }
  if (const int64_t version = count(json, "version", where); version != kVersion) {
    throw Error(fmt::format("{}: expected version {} of the format, got {}", where, kVersion, version));
  }
  if (json.contains(kHash) && json[kHash] != hash_of(json))  // older ones have none
    throw Error(fmt::format("{}: expected content with XXH3 {}, got {}; the file is damaged", where, json[kHash].dump(),
                            hash_of(json)));
  Identity identity;
  identity.split = field<std::string>(json, "split", where);
  identity.tokenizer_hash = field<std::string>(json, "tokenizer", where);
  identity.vocab_size = count(json, "vocab_size", where);
  const int64_t end_of_text = count(json, "end_of_text", where);
  if (end_of_text >= identity.vocab_size) {
    throw Error(fmt::format("{}: expected \"end_of_text\" below \"vocab_size\" {}, got {}", where, identity.vocab_size,
                            end_of_text));
  }
  identity.end_of_text = static_cast<uint32_t>(end_of_text);
  identity.documents = count(json, "documents", where);
  identity.tokens = count(json, "tokens", where);
  identity.text_bytes = static_cast<uint64_t>(count(json, "text_bytes", where));
  identity.recipe = field<std::string>(json, "recipe", where);
  for (const auto& source : field<std::vector<nlohmann::json>>(json, "sources", where)) {
    identity.sources.push_back({field<std::string>(source, "path", where), count(source, "files", where),
                                static_cast<uint64_t>(count(source, "bytes", where)),
                                field<std::string>(source, "xxh3", where),
                                source.contains("tokens") ? count(source, "tokens", where) : 0});
  }
  for (const auto& shard : field<std::vector<nlohmann::json>>(json, "shards", where)) {
    identity.shards.push_back({field<std::string>(shard, "file", where), count(shard, "tokens", where),
                               field<std::string>(shard, "xxh3", where)});
    if (const std::string& file = identity.shards.back().file; fs::path(file).filename() != file) {
      throw Error(fmt::format("{}: expected the name of a file beside it, got \"{}\"", where, file));
    }
  }
  return identity;
}

Identity read_identity(const fs::path& folder, std::string_view split) {
  const fs::path path = identity_path(folder, split);
  if (!fs::exists(path)) {
    throw Error(
        fmt::format("{}: expected token shards of the split \"{}\", found no {}; build them with `prism data build`",
                    folder.string(), split, path.filename().string()));
  }
  Identity identity = identity_from_json(io::read_file(path), path.string());
  if (identity.split == split) return identity;
  throw Error(fmt::format("{}: expected the split \"{}\", got \"{}\"", path.string(), split, identity.split));
}

bool has_shards(const fs::path& folder, std::string_view split) {
  std::error_code unreadable;
  return fs::is_regular_file(identity_path(folder, split), unreadable);
}

}  // namespace prism::data
