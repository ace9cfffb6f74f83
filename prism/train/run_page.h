#pragma once

#include "prism/report/page.h"
#include "prism/train/run_folder.h"

namespace prism::train {

// Convert the data of a run to the parts of a page.
report::PageRun page_run(const RunFolder& folder, const RunData& data);  // leaves `optimizer` empty
report::PageRouting page_routing(const RunSummary& summary, const std::string& optimizer_id);
report::PageMemory page_memory(const RunSummary& summary);
std::vector<report::Facts> page_facts(const RunSummary& summary);  // machine and corpus
report::PageDocument page_document(const RunFolder& folder, const RunData& data);

// Returns the name of an optimizer as people write it: "PRISM", "AdamW", "Muon" …
std::string optimizer_label(const std::string& name);

}  // namespace prism::train
