#pragma once

#include "prism/train/run_data.h"

namespace prism::train {

// List the fields of a run's files with their names in JSON, for prism/io/json_fields.h.

void fields(auto& json, MatrixNorms& n) { json("G", n.G)("W", n.W)("M?", n.M)("D?", n.D)("O?", n.O); }

void fields(auto& json, StepRecord& r) {
  json("step", r.step)("tokens", r.tokens)("loss", r.loss)("lr", r.lr)("aux_lr", r.aux_lr)("grad_norm", r.grad_norm);
  json("batch", r.batch)("skipped?", r.skipped)("culprit?", r.culprit)("norms?", r.norms);
  json("val_loss?", r.val_loss)("weight_norm?", r.weight_norm);
  json("seconds", r.seconds)("step_ms", r.step_ms)("optimizer_ms", r.optimizer_ms)("tokens_per_s", r.tokens_per_s);
}

void fields(auto& json, SpectraLine& s) {
  json("step", s.step)("name", s.matrix)("singular_values", s.singular_values)("snr", s.snr)("gain", s.gain);
  json("theory", s.theory)("augmented?", s.augmented)("weight_norm", s.weight_norm)("update_norm", s.update_norm);
}

void fields(auto& json, RunRecord& r) { json("data", r.data)("checkpoint", r.checkpoint); }

void fields(auto& json, RunState& s) {
  json("step", s.step)("tokens", s.tokens)("seconds", s.seconds)("skipped", s.skipped);
  json("skipped_in_row", s.skipped_in_row)("spectra?", s.spectra)("batches", s.batches);
  json("initial_weights", s.initial_weights)("data", s.data);
}

void fields(auto& json, Machine& m) {
  json("commit?", m.commit)("compiler?", m.compiler)("cores?", m.cores)("cpu?", m.cpu)("cuda?", m.cuda);
  json("date?", m.date)("device?", m.device)("driver?", m.driver)("gpu?", m.gpu)("memory_bytes?", m.memory_bytes);
  json("system?", m.system)("threads?", m.threads)("torch?", m.torch);
}

void fields(auto& json, RunSummary::Route& r) {
  json("name", r.name)("shape", r.shape)("rule", r.rule)("optimizer", r.optimizer);
}

void fields(auto& json, RunSummary::Source& s) {
  json("path?", s.path)("files", s.files)("bytes", s.bytes)("hash", s.hash);
}

void fields(auto& json, RunSummary::Data& d) {
  json("recipe", d.recipe)("tokenizer", d.tokenizer)("vocab", d.vocab)("train_tokens", d.train_tokens);
  json("val_tokens", d.val_tokens)("sources", d.sources)("unigram_entropy?", d.unigram_entropy);
}

void fields(auto& json, RunSummary::Timing& t) {
  json("seconds", t.seconds)("step_ms", t.step_ms)("optimizer_ms", t.optimizer_ms);
  json("optimizer_share", t.optimizer_share)("tokens_per_s", t.tokens_per_s);
}

void fields(auto& json, RunSummary::Memory& m) {
  json("of?", m.of)("peak_bytes", m.peak_bytes);
  json("reserved_peak_bytes?", m.reserved_peak_bytes)("host_peak_bytes?", m.host_peak_bytes);
}

void fields(auto& json, RunSummary& s) {
  json("status", s.status)("step", s.step)("tokens", s.tokens)("first_loss", s.first_loss)("loss", s.loss);
  json("val_loss", s.val_loss)("best_val_loss", s.best_val_loss)("skipped", s.skipped);
  json("stopped_early?", s.stopped_early)("diagnosis?", s.diagnosis)("parameters", s.parameters);
  json("matrix_parameters", s.matrix_parameters)("optimizer_state_bytes", s.optimizer_state_bytes);
  json("initial_weights", s.initial_weights)("final_weights?", s.final_weights)("batches", s.batches);
  json("routing?", s.routing)("machine", s.machine)("data", s.data)("timing", s.timing)("memory", s.memory);
  json("wall_seconds?", s.wall_seconds);
}

}  // namespace prism::train
