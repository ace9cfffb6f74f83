"""`prism train` under torchrun, with NCCL."""

import pathlib
import subprocess
import sys

import program
import pytest
from program import write_corpus

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "endure"))
import harness  # noqa: E402

# Sides that the kernels take.
SETTINGS = {**harness.SMALL, "model.width": 128, "model.mlp": 192, "run.device": "cuda", "train.deterministic": "true",
            "train.exact_reduction": "true", "train.accumulate": 2, "train.steps": 20, "checkpoint.every": 10}  # fmt: skip


@pytest.mark.gpu
def test_one_process_of_nccl_gives_the_run_of_one_without_a_launcher(tmp_path):
    if "no NCCL" in program.run("doctor")[0]:
        pytest.skip("this build has no NCCL")
    settings = {**SETTINGS, "data.path": write_corpus(tmp_path / "text", 200), "data.cache": tmp_path / "cache"}
    program.run(*harness.train(tmp_path / "one", settings))
    for owned in ("true", "false"):
        arguments = map(str, harness.train(tmp_path / owned, {**settings, "run.owned": owned}))
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "1"]
        ended = subprocess.run([*launcher, program.PROGRAM, *arguments], capture_output=True, text=True, env=program.ENVIRONMENT, timeout=120)
        assert ended.returncode == 0, ended.stderr
        assert "runs on 1 process, with NCCL" in ended.stderr
        assert harness.whole_differences(tmp_path / "one", tmp_path / owned) == []
