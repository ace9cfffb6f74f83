#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace prism::train {

// What a page (prism/report/page.h) shows of a run, read from its folder.

// An entry of `runs`, without `optimizer`.
nlohmann::json page_run(const std::filesystem::path& folder, const nlohmann::json& summary);
nlohmann::json page_routing(const nlohmann::json& summary, const std::string& optimizer_id);  // an entry of `routing`
nlohmann::json page_memory(const nlohmann::json& summary);  // `memory` of an optimizer
nlohmann::json page_facts(const nlohmann::json& summary);   // machine and corpus, for `facts`
nlohmann::json page_document(const std::filesystem::path& folder, const nlohmann::json& summary);  // of one run

nlohmann::json read_summary(const std::filesystem::path& folder);

// How people write the name of an optimizer: "PRISM", "AdamW", "Muon" …
std::string optimizer_label(const std::string& name);

// report.html, whole at any moment, from the folder and what summary.json says or will say.
void write_run_page(const std::filesystem::path& folder, const nlohmann::json& summary);

}  // namespace prism::train
