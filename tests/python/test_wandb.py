"""tools/wandb_offline.py, where the module wandb is installed: the offline run holds the metrics of the run."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest
from program import ROOT, TIMEOUT

SCRIPT = ROOT / "tools/wandb_offline.py"


def make_run(folder):
    folder.mkdir()
    (folder / "config.toml").write_text('[train]\nsteps = 3\n[optimizer]\nname = "prism"\n')
    lines = [{"step": step, "loss": 5.0 / step, "batch": "ab", "norms": {"q_proj": {"G": 0.5 * step}}} for step in (1, 2, 3)]
    lines[2]["val_loss"] = 1.25
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text(json.dumps({"status": "finished", "parameters": 7, "val_loss": 1.25, "best_val_loss": 1.25}))
    return folder


def records(path):
    """The payloads of a log in LevelDB's format: blocks of 32 KiB, each record with checksum, length and kind in front."""
    data, at, parts = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if kind == 0:
            break
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def test_an_offline_run_holds_the_metrics(tmp_path):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2 as protocol

    run = make_run(tmp_path / "run")
    result = subprocess.run([sys.executable, SCRIPT, run], capture_output=True, text=True, check=True, timeout=TIMEOUT)
    folder = pathlib.Path(result.stdout.strip())
    assert folder.parent == run / "wandb" and folder.name.startswith("offline-run-")
    rows = []
    for payload in records(next(folder.glob("*.wandb"))):
        record = protocol.Record()
        record.ParseFromString(payload)
        if record.HasField("history"):
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
    assert [(row["loss"], row["norms/q_proj/G"]) for row in rows] == [(5.0, 0.5), (2.5, 1.0), (5.0 / 3, 1.5)]
    assert rows[2]["val_loss"] == 1.25 and "batch" not in rows[0]


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "wandb.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 2 and "the Python module wandb is missing" in result.stderr, result.stderr
    (tmp_path / "wandb.py").write_text("")
    result = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 2 and "expected a run folder" in result.stderr, result.stderr
