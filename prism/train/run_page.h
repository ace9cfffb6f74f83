#pragma once

#include "prism/report/page.h"
#include "prism/train/run_folder.h"

namespace prism::train {

// What a page shows of the run in a folder.
report::PageRun page_run(const RunFolder& folder, const RunData& data);  // without `optimizer`
report::PageRouting page_routing(const RunSummary& summary, const std::string& optimizer_id);
report::PageMemory page_memory(const RunSummary& summary);
std::vector<report::Facts> page_facts(const RunSummary& summary);  // machine and corpus
report::PageDocument page_document(const RunFolder& folder, const RunData& data);

// How people write the name of an optimizer: "PRISM", "AdamW", "Muon" …
std::string optimizer_label(const std::string& name);

}  // namespace prism::train
