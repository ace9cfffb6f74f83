#!/usr/bin/env python3
"""Writes runs of `prism train`, finished or not, as offline runs of Weights & Biases. Needs the Python module wandb, but no account:

    python tools/wandb_offline.py runs/a runs/b --project prism      # writes runs/a/wandb/offline-run-… and prints its path
    wandb sync runs/a/wandb/offline-run-*                            # uploads it

A run that is written again keeps its id, so a later upload continues it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import tomllib
from typing import Any


def flattened(line: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers in a line of metrics.jsonl; {"norms": {"q_proj": {"G": 1}}} becomes "norms/q_proj/G"."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= {f"{key}/{inner}": number for inner, number in flattened(value).items()}
        elif isinstance(value, (int, float)) and key != "step":
            found[key] = float(value)
    return found


def export(run: pathlib.Path, project: str) -> pathlib.Path:
    import wandb

    config = tomllib.loads((run / "config.toml").read_text())
    identity = hashlib.sha256((run / "config.toml").read_bytes()).hexdigest()[:12]
    settings = wandb.Settings(mode="offline", console="off", quiet=True)
    with wandb.init(project=project, name=run.name, id=identity, dir=str(run), config=config, settings=settings) as session:
        for text in (run / "metrics.jsonl").read_text().splitlines():
            line = json.loads(text)
            session.log(flattened(line), step=line["step"])
        if (run / "summary.json").exists():
            summary = json.loads((run / "summary.json").read_text())
            for key in ("status", "parameters", "val_loss", "best_val_loss"):
                session.summary[key] = summary[key]
        return pathlib.Path(session.dir).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--project", default="prism")
    arguments = parser.parse_args()
    try:
        import wandb  # noqa: F401
    except ImportError:
        print("wandb_offline: the Python module wandb is missing; install it with: pip install wandb", file=sys.stderr)
        return 2
    for run in arguments.runs:
        if not (run / "metrics.jsonl").exists() or not (run / "config.toml").exists():
            print(f"wandb_offline: {run}: expected a run folder with config.toml and metrics.jsonl", file=sys.stderr)
            return 2
        print(export(run, arguments.project))
    return 0


if __name__ == "__main__":
    sys.exit(main())
