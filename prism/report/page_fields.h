#pragma once

#include "prism/report/page.h"

namespace prism::report {

// Lists the fields of a PageDocument with their JSON names, for prism/io/json_fields.h. The page's scripts use the same
// names.

void fields(auto& json, Sentence& s) { json("text", s.text)("tone?", s.tone); }
void fields(auto& json, Highlight& h) { json("value", h.value)("label", h.label); }
void fields(auto& json, SweepRun& run) { json("lr", run.lr)("loss", run.loss)("status", run.status); }

void fields(auto& json, ToleratedRates& t) {
  json("low", t.low)("high", t.high)("low_open", t.low_open)("high_open", t.high_open);
}

void fields(auto& json, SeedLoss& s) { json("seed", s.seed)("loss", s.loss); }
void fields(auto& json, MeanLoss& l) { json("mean", l.mean)("low?", l.low)("high?", l.high); }

void fields(auto& json, FinalLoss& l) {
  fields(json, static_cast<MeanLoss&>(l));
  json("seeds", l.seeds);
}

void fields(auto& json, PageMemory& m) {
  json("weights?", m.weights)("gradients?", m.gradients)("optimizer?", m.optimizer)("peak?", m.peak)("of?", m.of);
}

void fields(auto& json, PageOptimizer& o) {
  json("id", o.id)("label", o.label)("detail?", o.detail)("sweep?", o.sweep)("best_lr?", o.best_lr)("edge?", o.edge);
  json("tolerance?", o.tolerance)("final?", o.final)("difference?", o.difference);
  json("tokens_to_baseline?", o.tokens_to_baseline)("seconds_to_baseline?", o.seconds_to_baseline);
  json("tokens_speedup?", o.tokens_speedup)("seconds_speedup?", o.seconds_speedup);
  json("step_ms?", o.step_ms)("optimizer_ms?", o.optimizer_ms)("memory?", o.memory);
}

void fields(auto& json, LossCurve& c) {
  json("step", c.step)("tokens?", c.tokens)("seconds?", c.seconds)("loss", c.loss)("low?", c.low)("high?", c.high);
}

void fields(auto& json, NormCurve& c) { json("step", c.step)("weight", c.weight); }

void fields(auto& json, Spectrum& s) {
  json("step", s.step)("matrix", s.matrix)("gamma?", s.gamma)("snr?", s.snr)("gain?", s.gain)("theory?", s.theory);
  json("singular_values?", s.singular_values)("weight_singular_values?", s.weight_singular_values);
  json("weight_norm?", s.weight_norm)("update_norm?", s.update_norm);
}

void fields(auto& json, PageRun& run) {
  json("optimizer?", run.optimizer)("lr", run.lr)("seed", run.seed)("status", run.status)("best?", run.best);
  json("stopped_step?", run.stopped_step)("loss?", run.loss)("val_loss?", run.val_loss)("seconds?", run.seconds);
  json("folder?", run.folder)("train?", run.train)("val?", run.val)("norms?", run.norms)("spectra?", run.spectra);
}

void fields(auto& json, RoutingRow& row) {
  json("parameter", row.parameter)("shape?", row.shape)("to", row.to)("rule?", row.rule);
}

void fields(auto& json, PageRouting& routing) { json("optimizer", routing.optimizer)("rows", routing.rows); }
void fields(auto& json, Sample& s) { json("optimizer", s.optimizer)("prompt?", s.prompt)("text", s.text); }
void fields(auto& json, Facts& f) { json("title", f.title)("rows", f.rows); }

void fields(auto& json, PublishedValue& v) {
  json("optimizer", v.optimizer)("lr", v.lr)("paper", v.paper)("here", v.here);
  json("paper_value?", v.paper_value)("here_value?", v.here_value)("here_low?", v.here_low)("here_high?", v.here_high);
}

void fields(auto& json, Published& p) {
  json("paper_label", p.paper_label)("here_label", p.here_label)("values", p.values);
}

void fields(auto& json, PageDocument& d) {
  json("kind", d.kind)("title", d.title)("program?", d.program)("created?", d.created)("summary", d.summary);
  json("highlights?", d.highlights)("baseline?", d.baseline)("tolerance?", d.tolerance)("confidence?", d.confidence);
  json("optimizers", d.optimizers)("runs", d.runs)("published?", d.published);
  json("routing?", d.routing)("samples?", d.samples)("facts?", d.facts);
  json("config?", d.config)("command?", d.command);
}

}  // namespace prism::report
