"""A made-up comparison for the tests of the report page, in the form of a real one: `python report_sample.py > sample.json`."""

import json
import math
import random
import sys

STEPS, TOKENS_PER_STEP, EVAL_EVERY, VOCABULARY = 2400, 4096, 120, 4096
RATES = [0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04]
FINAL_SEEDS = [1, 2, 3, 4]
T_95 = 3.182  # Student's t for a two-sided 95 % interval of four values

# best loss, best rate, curvature below and above it, rate of divergence, milliseconds of a step and of the optimizer, γ
OPTIMIZERS = {
    "adamw": ("AdamW", "β 0.9, 0.95", 3.612, 0.0031, 0.110, 0.240, 0.035, 96.0, 3.1, None),
    "muon": ("Muon", "β 0.95, Nesterov", 3.468, 0.0056, 0.060, 0.120, None, 104.0, 10.8, 0.0),
    "prism": ("PRISM", "γ 1, β 0.95, Nesterov", 3.455, 0.0110, 0.022, 0.025, None, 107.0, 13.9, 1.0),
    "prism-ema": ("PRISM averaged", "γ 0.5, covariance ema 0.99", 3.421, 0.0098, 0.016, 0.018, None, 111.0, 17.6, 0.5),
}
MATRICES = {
    "self_attn.q_proj": (128, 128), "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128), "self_attn.o_proj": (128, 128),
    "mlp.gate_proj": (352, 128), "mlp.up_proj": (352, 128), "mlp.down_proj": (128, 352),
}  # fmt: skip
LAYERS = 4


def final_loss(name, lr, noise):
    _, _, best, best_lr, below, above, diverges, *_ = OPTIMIZERS[name]
    if diverges is not None and lr > diverges:
        return None
    octaves = math.log2(lr / best_lr)
    return best + (below if octaves < 0 else above) * octaves**2 + noise


def expected_loss(final, step):
    target = 5.4 if final is None else final
    return target + (math.log(VOCABULARY) - target) * (1 + step / 22) ** -0.95 * (1 - (step / STEPS) ** 3) + 0.1 * (1 - step / STEPS) ** 1.5


def curve(final, seed, step_ms):
    generator = random.Random(seed)
    last = STEPS if final is not None else 310
    losses, drift = [], 0.0
    for step in range(1, last + 1):
        drift = 0.9 * drift + generator.gauss(0, 0.006)
        loss = expected_loss(final, step) - 0.06
        if final is None and step > 240:
            loss += math.exp((step - 240) / 16) - 1
        losses.append(loss + drift + generator.gauss(0, 0.035))
    if final is None:
        losses[-1] = None
    steps = list(range(1, last + 1))
    return {
        "step": steps, "tokens": [s * TOKENS_PER_STEP for s in steps],
        "seconds": [s * step_ms / 1000 * (1 + 0.01 * math.sin(s / 200)) for s in steps], "loss": losses,
    }  # fmt: skip


def held_out(train, final, seed):
    generator = random.Random(seed + 77)
    at = [i for i, step in enumerate(train["step"]) if step % EVAL_EVERY == 0]
    losses = [expected_loss(final, train["step"][i]) + generator.gauss(0, 0.006) for i in at]
    if final is not None:
        losses[-1] = final
    return {**{key: [train[key][i] for i in at] for key in ("step", "tokens", "seconds")}, "loss": losses}


def newton_schulz(x):
    """Applies five steps of Jordan's quintic, so that gains scatter around 1 as real ones do."""
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    return x


def spectra(name, seed):
    generator = random.Random(seed)
    gamma = OPTIMIZERS[name][-1]
    records = []
    for step in (100, 600, 1200, 2400):
        for layer in range(LAYERS):
            for kind, shape in MATRICES.items():
                directions = min(shape)
                level = 0.9 - 0.12 * layer + (0.4 if "v_proj" in kind else 0) - (0.3 if "down" in kind else 0)
                spread = 0.7 + 0.5 * step / STEPS
                snr = [
                    math.exp(level * 1.1 - spread * 3.1 * (i / directions) ** 0.6 + generator.gauss(0, 0.10)) * 0.8 for i in range(directions)
                ]
                theory = [1 / math.sqrt(1 + (gamma / r) ** 2) for r in snr]
                sizes = [math.exp(-1.2 - 3.6 * (i / directions) ** 0.7 + generator.gauss(0, 0.12)) for i in range(directions)]
                gain = [t * newton_schulz(size) for t, size in zip(theory, sizes)]
                records.append({
                    "step": step, "matrix": f"model.layers.{layer}.{kind}.weight", "gamma": gamma, "snr": snr, "gain": gain, "theory": theory,
                    "singular_values": [0.004 * (1 + i) ** -0.6 * math.exp(-2.2 * i / directions) for i in range(directions)],
                    "weight_norm": 2.3 * math.sqrt(math.prod(shape) / 16384) * (1 + 0.9 * math.sqrt(step / STEPS) / (1 + gamma)),
                    "update_norm": math.sqrt(sum(g * g for g in gain)),
                })  # fmt: skip
    return records


def norms(name):
    steps = list(range(20, STEPS + 1, 20))
    growth = {"adamw": 1.7, "muon": 1.25, "prism": 0.62, "prism-ema": 0.71}[name]
    return {"step": steps, "weight": [31.4 * math.sqrt(1 + growth * 2.2 * (s / STEPS) ** 0.8) for s in steps]}


def make_run(name, lr, seed, best):
    generator = random.Random(f"{name} {lr} {seed}")
    noise = generator.gauss(0, 0.0035) + 0.004 * math.sin(3 * seed)
    final, step_ms = final_loss(name, lr, noise), OPTIMIZERS[name][7]
    train = curve(final, generator.random(), step_ms)
    run = {
        "optimizer": name, "lr": lr, "seed": seed, "status": "diverged" if final is None else "finished", "best": best,
        "loss": train["loss"][-1], "val_loss": final, "seconds": train["seconds"][-1],
        "folder": f"runs/demo/{name}-lr{lr:g}-seed{seed}", "train": train, "val": held_out(train, final, seed),
    }  # fmt: skip
    if final is None:
        run["stopped_step"] = train["step"][-1]
    if best and seed == 0:
        run["norms"] = norms(name)
        if OPTIMIZERS[name][-1] is not None:
            run["spectra"] = spectra(name, f"spectra {name}")
    return run


def mean_interval(values):
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = T_95 * deviation / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def tolerated(sweep, best_loss):
    """Returns the rates around the best where the loss, interpolated in log rate, stays within 0.02 of the best."""
    points = [(math.log(p["lr"]), p["loss"]) for p in sweep if p["loss"] is not None]
    center = min(range(len(points)), key=lambda i: points[i][1])

    def walk(step):
        i = center
        while 0 <= i + step < len(points):
            (x0, y0), (x1, y1) = points[i], points[i + step]
            if y1 > best_loss + 0.02:
                return math.exp(x0 + (best_loss + 0.02 - y0) / (y1 - y0) * (x1 - x0)), False
            i += step
        return math.exp(points[i][0]), (i + step < 0 or len(points) == len(RATES))

    (low, low_open), (high, high_open) = walk(-1), walk(+1)
    return {"low": low, "high": high, "low_open": low_open, "high_open": high_open}


def comparison():
    runs, optimizers = [], []
    for name, (label, detail, *_, step_ms, optimizer_ms, gamma) in OPTIMIZERS.items():
        swept = [make_run(name, lr, 0, False) for lr in RATES]
        best = min((run for run in swept if run["val_loss"] is not None), key=lambda run: run["val_loss"])
        swept[swept.index(best)] = best = make_run(name, best["lr"], 0, True)
        seeds = [make_run(name, best["lr"], seed, True) for seed in FINAL_SEEDS]
        runs += swept + seeds
        sweep = [{"lr": run["lr"], "loss": run["val_loss"], "status": run["status"]} for run in swept]
        state = round(4 * 1_050_000 * {"adamw": 2, "muon": 1.2, "prism": 1.2, "prism-ema": 2.4}[name])
        optimizers.append({
            "id": name, "label": label, "detail": detail, "sweep": sweep, "best_lr": best["lr"], "edge": None,
            "tolerance": tolerated(sweep, best["val_loss"]),
            "final": {**mean_interval([run["val_loss"] for run in seeds]), "seeds": [{"seed": run["seed"], "loss": run["val_loss"]} for run in seeds]},
            "step_ms": step_ms, "optimizer_ms": optimizer_ms,
            "memory": {"weights": 4_200_000, "gradients": 4_200_000, "optimizer": state, "peak": 96_000_000 + state},
        })  # fmt: skip
    base = optimizers[0]
    for one in optimizers:
        pairs = [a["loss"] - b["loss"] for a, b in zip(one["final"]["seeds"], base["final"]["seeds"])]
        if one is not base:
            one["difference"] = mean_interval(pairs)
        fraction = min(1.0, math.exp(2.6 * (one["final"]["mean"] - base["final"]["mean"])))
        one["tokens_to_baseline"] = round(STEPS * fraction) * TOKENS_PER_STEP
        one["seconds_to_baseline"] = STEPS * fraction * one["step_ms"] / 1000
        one["tokens_speedup"] = STEPS * TOKENS_PER_STEP / one["tokens_to_baseline"]
        one["seconds_speedup"] = STEPS * base["step_ms"] / 1000 / one["seconds_to_baseline"]
    return runs, optimizers


def routing(name):
    matrices = OPTIMIZERS[name][0]
    rows = [{"parameter": "model.embed_tokens.weight", "shape": [VOCABULARY, 128], "to": "AdamW", "rule": "embedding"}]
    for layer in range(LAYERS):
        for kind, shape in MATRICES.items():
            rows.append({"parameter": f"model.layers.{layer}.{kind}.weight", "shape": list(shape), "to": matrices, "rule": "hidden matrix"})
        rows.append({"parameter": f"model.layers.{layer}.input_layernorm.weight", "shape": [128], "to": "AdamW", "rule": "not a matrix"})
    return rows + [{"parameter": "model.norm.weight", "shape": [128], "to": "AdamW", "rule": "not a matrix"}]


CONFIG = """[model]
preset = "demo"

[data]
path = "torch sources"
vocab = 4096

[train]
steps = 2400
batch = 32
context = 128

[compare]
optimizers = ["adamw", "muon", "prism", "prism-ema"]
lr = [0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04]
seeds = 5
"""


def document():
    runs, optimizers = comparison()
    best, base = min(optimizers, key=lambda one: one["final"]["mean"]), optimizers[0]
    gap = best["difference"]
    return {
        "kind": "compare", "title": "Four optimizers on Python sources", "program": "prism 0.1.0", "created": "2026-11-15 15:04 UTC",
        "summary": [
            {"tone": "headline", "text": f"{best['label']} wins: {-gap['mean']:.3f} lower held-out loss than AdamW, each at its best learning rate."},
            {"text": f"The 95 % interval of the difference is **{-gap['high']:.3f} to {-gap['low']:.3f}** over {len(FINAL_SEEDS)} paired seeds, so the sign is certain. "
                     f"It reaches AdamW's final loss with {1 / best['tokens_speedup']:.0%} of the tokens and {1 / best['seconds_speedup']:.0%} of the time."},
            {"text": "Muon and PRISM are closer to each other than to AdamW; PRISM keeps its loss over the widest range of rates."},
            {"tone": "caution", "text": "One model size and one corpus: a made-up example for the tests of this page."},
        ],
        "highlights": [
            {"value": f"−{-gap['mean']:.3f}", "label": f"held-out loss of {best['label']} against AdamW, 95 % interval −{-gap['low']:.3f} to −{-gap['high']:.3f}"},
            {"value": f"{best['tolerance']['high'] / best['tolerance']['low']:.0f}×", "label": f"range of learning rates that {best['label']} tolerates; AdamW {base['tolerance']['high'] / base['tolerance']['low']:.1f}×"},
            {"value": f"{best['tokens_speedup']:.2f}×", "label": "fewer tokens to AdamW's final loss"},
            {"value": f"{best['seconds_speedup']:.2f}×", "label": "less time to AdamW's final loss"},
        ],
        "baseline": "adamw", "tolerance": 0.02, "confidence": 0.95, "optimizers": optimizers, "runs": runs,
        "published": {"paper_label": "final loss", "here_label": "held-out loss", "values": [
            {"optimizer": "adamw", "lr": 0.005, "paper": "3.324", "paper_value": 3.324, "here": "2.9100", "here_value": 2.91},
            {"optimizer": "muon", "lr": 0.02, "paper": "3.285", "paper_value": 3.285, "here": "2.8000", "here_value": 2.8},
            {"optimizer": "muon", "lr": 0.1, "paper": "diverged", "here": "4.1000", "here_value": 4.1},
            {"optimizer": "prism", "lr": 0.02, "paper": "3.266", "paper_value": 3.266, "here": "2.7700 ± 0.0400", "here_value": 2.77, "here_low": 2.73, "here_high": 2.81},
        ]},
        "routing": [{"optimizer": name, "rows": routing(name)} for name in OPTIMIZERS],
        "samples": [{"optimizer": name, "prompt": "def forward(self, x):", "text": "\n    x = self.norm(x)\n    if self.training and x.requires_grad:\n        return torch.add(x, self.bias)\n    return x"} for name in OPTIMIZERS],
        "facts": [
            {"title": "Machine", "rows": [["Processor", "2 cores of a made-up CPU"], ["Memory", "16 GiB"], ["torch", "2.13.0+cpu"], ["Threads", "2"]]},
            {"title": "Corpus", "rows": [["Text", "Python sources, 2,285 files, 46 MB"], ["Hash", "XXH3 9f0c6b1d2a77e3f4"], ["Tokenizer", "byte-level BPE, 4096 entries"], ["Held out", "116,480 tokens"]]},
            {"title": "Fairness", "rows": [["Initial weights", "equal in all runs of a seed: 5be0c3d1a9f27788"], ["Batches", "equal in all runs of a seed: 1187cc02fe0945ab"], ["Diverged", "1 of 40 runs, counted"]]},
        ],
        "config": CONFIG, "command": "prism compare --config configs/demo.toml --out runs/demo",
    }  # fmt: skip


if __name__ == "__main__":
    json.dump(document(), sys.stdout)
