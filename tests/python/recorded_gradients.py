"""Gradients and momenta of a real training run: a Qwen2 decoder learns the Python sources inside the installed torch, word by word, with PRISM.

`PYTHONPATH=build/release/python python tests/python/recorded_gradients.py` prints how accurate the updates from them are.
"""

import collections
import dataclasses
import pathlib
import re
import sys

import prism_optim
import torch
from optim_accuracy import BETA, SETS, Exact, error, literal_bf16, signal_of, update_of

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from twin import Twin  # noqa: E402

GAMMAS = (0, 1)


@dataclasses.dataclass(frozen=True)
class Setting:
    width: int = 512
    mlp: int = 1408
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    batch: int = 32
    context: int = 256
    vocab: int = 8192  # more words than the width: with fewer, as with bytes, the last layers' gradients lack rank
    corpus_bytes: int = 12_000_000
    moments: tuple[int, ...] = (10, 100, 400)  # steps at which gradients are recorded


@dataclasses.dataclass(frozen=True)
class Record:
    matrix: str
    moment: int
    G: torch.Tensor
    M: torch.Tensor  # before the step


def corpus(setting):
    """Returns the text as ranks of its most frequent words and signs; all others are 0."""
    text = bytearray()
    for path in sorted(pathlib.Path(torch.__file__).parent.rglob("*.py")):
        text += path.read_bytes()
        if len(text) >= setting.corpus_bytes:
            break
    words = re.findall(rb" ?\w+|\s+|[^\w\s]+", text[: setting.corpus_bytes])
    ranks = {word: rank for rank, (word, _) in enumerate(collections.Counter(words).most_common(setting.vocab - 1), 1)}
    return torch.tensor([ranks.get(word, 0) for word in words])


def train(device, setting=Setting()):
    """Trains and returns records of the hidden matrices of the first and the last layer, and the loss at each moment."""
    torch.manual_seed(0)
    model = Twin(dataclasses.asdict(setting)).to(device)
    optimizer = prism_optim.Mixed(model, lr=0.01, aux_lr=0.003, momentum=BETA)
    text = corpus(setting).to(device)
    choose = torch.Generator().manual_seed(0)
    window = torch.arange(setting.context + 1, device=device)
    ends = (f"layers.{i}." for i in (0, setting.layers - 1))
    observed = [(name.removesuffix(".weight"), p) for end in ends for name, p in model.named_parameters() if name.startswith(end) and p.dim() == 2]
    records, losses = [], {}
    for step in range(1, max(setting.moments) + 1):
        starts = torch.randint(len(text) - setting.context - 1, (setting.batch,), generator=choose).to(device)
        tokens = text[starts[:, None] + window]
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=torch.device(device).type == "cuda"):
            loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        if step in setting.moments:
            losses[step] = loss.item()
            records += [Record(name, step, p.grad.clone(), optimizer.state[p]["momentum"].clone()) for name, p in observed]
        optimizer.step()
    return records, losses


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Errors of the updates from one record against the same polynomial in float64, and their distances to the exact factor.

    As a line of a table the distances are those of the update and, in brackets, of the polynomial in float64.
    """

    matrix: str
    moment: int
    gamma: float
    noise: float  # ‖D‖/‖T‖
    condition: float  # of [T; γD]
    smallest: float  # singular value, by the Frobenius norm
    finite: bool
    literal: float
    ours: dict[str, float]
    polynomial_distance: dict[str, float]  # in float64
    our_distance: dict[str, float]

    COLUMNS = (
        "matrix", "step", "γ", "‖D‖/‖T‖", "condition", "literal bf16", *(f"kernels, {c}" for c in SETS), *(f"{c} to the factor" for c in SETS),
    )  # fmt: skip

    def __str__(self):
        errors = " | ".join(f"{e:.1e}" for e in (self.literal, *self.ours.values()))
        distances = " | ".join(f"{self.our_distance[c]:.3f} ({self.polynomial_distance[c]:.3f})" for c in SETS)
        return f"| {self.matrix} | {self.moment} | {self.gamma} | {self.noise:.1f} | {self.condition:.0e} | {errors} | {distances} |"


def accuracy(record, gamma):
    T, D = signal_of(record.G, record.M)
    exact = Exact(T, D, gamma)
    updates = {c: update_of(record.G, record.M, gamma, nesterov=True, coefficients=c) for c in SETS}
    polynomials = {c: exact.polynomial(c) for c in SETS}
    factor = exact.factor()
    return Accuracy(
        record.matrix, record.moment, gamma, (D.norm() / T.norm()).item(), (exact.sigma[0] / exact.sigma[-1]).item(),
        exact.sigma[-1].item(),
        finite=all(u.isfinite().all().item() for u in updates.values()),
        literal=error(literal_bf16(T, D, gamma), polynomials["jordan"]),
        ours={c: error(updates[c], polynomials[c]) for c in SETS},
        polynomial_distance={c: error(polynomials[c], factor) for c in SETS},
        our_distance={c: error(updates[c], factor) for c in SETS},
    )  # fmt: skip


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    records, losses = train(device)
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else device}, torch {torch.__version__}")
    print("loss at steps", ", ".join(f"{step}: {loss:.3f}" for step, loss in losses.items()))
    print("\n| " + " | ".join(Accuracy.COLUMNS) + " |\n" + "|---" * len(Accuracy.COLUMNS) + "|")
    for gamma in GAMMAS:
        for record in records:
            print(accuracy(record, gamma), flush=True)


if __name__ == "__main__":
    main()
