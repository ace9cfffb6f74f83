"""Runs a function of a test file in several processes with one gloo group."""

import os
import pathlib
import subprocess
import sys

import prism_optim
from program import TIMEOUT

PACKAGE = pathlib.Path(prism_optim.__file__).parent.parent
MAIN = """
import importlib, os, sys
import torch, torch.distributed as dist
module, function, rank, size, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
dist.init_process_group("gloo", init_method=f"file://{folder}/store.{function}.{size}", rank=rank, world_size=size)
getattr(importlib.import_module(module), function)(rank, size, folder)
dist.barrier()
sys.stdout.flush()
os._exit(0)  # gloo's threads sometimes abort a process that takes its group down
"""


def run(test_file, function, size, folder):
    """Calls function(rank, size, folder) in `size` processes and waits for them."""
    here = pathlib.Path(test_file).parent
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, [PACKAGE, here, here.parent]))}
    arguments = [sys.executable, "-c", MAIN, pathlib.Path(test_file).stem, function]
    running = [subprocess.Popen([*arguments, str(rank), str(size), str(folder)], env=environment) for rank in range(size)]
    assert [process.wait(timeout=TIMEOUT) for process in running] == [0] * size
