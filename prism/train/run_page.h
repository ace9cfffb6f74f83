#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace prism::train {

// What a page (prism/report/page.h) shows of a run, read from its folder.

// An entry of `runs`, without `optimizer`.
nlohmann::json page_run(const std::filesystem::path& folder, const nlohmann::json& summary);
nlohmann::json page_routing(const nlohmann::json& summary, const std::string& optimizer_id);  // an entry of `routing`
nlohmann::json page_memory(const nlohmann::json& summary);  // `memory` of an optimizer
nlohmann::json page_facts(const nlohmann::json& summary);   // machine and corpus, for `facts`
nlohmann::json page_document(const std::filesystem::path& folder, const nlohmann::json& summary);  // of one run

nlohmann::json read_summary(const std::filesystem::path& folder);

// Whether the run in a folder has ended by itself, in whatever way; an interrupted one goes on.
bool has_ended(const std::filesystem::path& folder);

// How people write the name of an optimizer: "PRISM", "AdamW", "Muon" …
std::string optimizer_label(const std::string& name);

// Write report.html, which is whole at any moment: of a run that has ended, and of one that goes on, from some lines of
// metrics.jsonl and without spectra, so that it takes no longer the longer the run is.
void write_run_page(const std::filesystem::path& folder, const nlohmann::json& summary);
void write_live_page(const std::filesystem::path& folder, const nlohmann::json& summary,
                     const std::vector<nlohmann::json>& metrics);

}  // namespace prism::train
