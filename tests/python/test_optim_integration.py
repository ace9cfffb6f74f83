"""prism_optim beside autocast and DistributedDataParallel; its examples, documents and types. Other programs are in clients/."""

import doctest
import os
import pathlib
import re
import subprocess
import sys

import prism_optim
import pytest
import torch
from optim_cases import assert_same, set_gradients
from program import ROOT, TIMEOUT

PACKAGE = pathlib.Path(prism_optim.__file__).parent


def run_python(*arguments, **environment):
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT, env=variables | environment)


def test_autocast_does_not_reach_into_a_step():
    results = []
    for enabled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 16)
        optimizer = prism_optim.Mixed(model)
        set_gradients(list(model.named_parameters()), 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            optimizer.step()
        results.append(model.weight.detach().clone())
    assert_same(*results)


def test_training_under_autocast_falls():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.01)
    inputs = torch.randn(64, 8)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = (model(inputs) - inputs.sin()).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_step_marks_its_weights_as_changed():
    weight = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = prism_optim.Prism([weight])
    loss = (weight * weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


DDP = """
import os, sys, torch, prism_optim
import torch.distributed as dist
rank, size, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).double()
inputs = torch.randn(5, 32, 8, dtype=torch.float64)
wrapped = torch.nn.parallel.DistributedDataParallel(model)
optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.01)
for batch in inputs:
    optimizer.zero_grad()
    wrapped(batch.chunk(size)[rank]).square().mean().backward()
    optimizer.step()
torch.save(model.state_dict(), f"{out}.{rank}")
dist.barrier()
os._exit(0)  # gloo's threads sometimes abort a process that takes its group down
"""


def test_two_processes_equal_one(tmp_path):
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE.parent)}

    def train(size):
        running = [
            subprocess.Popen(
                [sys.executable, script, str(rank), str(size), str(tmp_path / f"store{size}"), str(tmp_path / f"out{size}")], env=environment
            )
            for rank in range(size)
        ]
        assert [process.wait(timeout=TIMEOUT) for process in running] == [0] * size
        return [torch.load(tmp_path / f"out{size}.{rank}") for rank in range(size)]

    (one,) = train(1)
    first, second = train(2)
    assert_same(first, second)
    torch.testing.assert_close(first, one, rtol=1e-9, atol=1e-11)


def test_a_mesh_of_one_process_needs_no_others(tmp_path):
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        plain = torch.nn.Parameter(torch.randn(4, 4))
        sharded = torch.nn.Parameter(distribute_tensor(plain.data.clone(), init_device_mesh("cpu", (1,)), [Shard(0)]))
        for parameter in (plain, sharded):
            optimizer = prism_optim.Prism([("w", parameter)])
            parameter.sum().backward()
            optimizer.step()
            assert "to its owner" not in optimizer.plan()
        assert torch.equal(plain, sharded.to_local())
    finally:
        dist.destroy_process_group()


def test_a_tensor_of_another_class_is_refused_by_name():
    from torch.testing._internal.two_tensor import TwoTensor

    strange = torch.nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
    with pytest.raises(TypeError, match=r"prism: 'w' must be a plain tensor or a DTensor, got another subclass of Tensor; keep it plain"):
        prism_optim.Prism([("w", strange)])


def test_the_plan_of_one_process():
    weight, bias = torch.nn.Parameter(torch.randn(8, 4)), torch.nn.Parameter(torch.randn(8))
    optimizer = prism_optim.Mixed([{"params": [("a.weight", weight)], "optimizer": "prism"}, {"params": [("a.bias", bias)], "optimizer": "adamw"}])
    lines = optimizer.plan().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["matrix", "a.weight", "Every process shapes all its matrices: cost 1.6e+03."]


@pytest.mark.parametrize("name", ["optimizers", "routing", "spectra"])
def test_examples_in_docstrings_run(name):
    module = sys.modules[f"prism_optim.{name}"]
    result = doctest.testmod(module, extraglobs={"torch": torch, **{key: getattr(prism_optim, key) for key in prism_optim.__all__}})
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize("page", ["from-adamw.md", "from-muon.md"])
def test_examples_in_the_documents_run(page):
    result = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, encoding="utf-8")
    assert result.failed == 0
    assert result.attempted > 0


# The loss that each example must end below.
EXAMPLES = {"plain_loop": 0.4, "switch_adamw": 0.1, "hf_trainer": 3.0, "lightning_module": 0.1}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_train(name):
    for package in {"hf_trainer": ["transformers", "accelerate"], "lightning_module": ["lightning"]}.get(name, []):
        pytest.importorskip(package)
    result = run_python(f"examples/{name}.py")
    assert result.returncode == 0, result.stderr
    last = [line for line in result.stdout.splitlines() if "loss" in line][-1]
    assert float(re.findall(r"(?:loss|->) (\d+\.\d+)", last)[-1]) < EXAMPLES[name], result.stdout


def test_the_example_with_several_processes_runs():
    result = run_python("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "examples/fsdp2.py", "--steps", "20")
    assert result.returncode == 0, result.stderr
    assert "to its owner" in result.stdout
    losses = [float(line.split("loss ")[1].split()[0]) for line in result.stdout.splitlines() if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]


def test_a_script_switches_by_two_lines(tmp_path):
    (tmp_path / "examples").mkdir()
    script = tmp_path / "examples" / "switch_adamw.py"
    script.write_text((ROOT / "examples" / "switch_adamw.py").read_text())
    diff = (ROOT / "examples" / "switch_to_prism.diff").read_text()
    assert sum(line.startswith("+") and not line.startswith("+++") for line in diff.splitlines()) == 2
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    result = run_python(script)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Mixed: loss 0.0")


def test_another_torch_is_refused_with_the_way_out():
    code = "import torch; torch.__version__ = '2.11.0+other'; import prism_optim"
    result = run_python("-c", code)
    assert result.returncode == 1
    assert f"ImportError: prism_optim was built with torch {torch.__version__}, but torch 2.11.0+other is running; build it again with" in result.stderr


def test_the_library_needs_no_python():
    symbols = subprocess.run(["nm", "-D", "--undefined-only", PACKAGE / "libprism_ops.so"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in symbols.splitlines() if line.split()[-1].startswith(("Py", "_Py"))]


USE = """
import torch, prism_optim
model = torch.nn.Linear(2, 2)
prism_optim.Prism(model.named_parameters(), lr=torch.tensor(0.1), side="left", coefficients=[(2.0, -1.5, 0.5)])
prism_optim.Prism(model.parameters(), side="up")
prism_optim.Mixed(model, aux_betas=(0.9, 0.95), aux_lr="much")
"""


def test_mypy_accepts_the_package_and_sees_its_signatures(tmp_path):
    pytest.importorskip("mypy")
    assert (PACKAGE / "py.typed").exists()
    (tmp_path / "use.py").write_text(USE)
    options = ["--strict", "--follow-imports=silent", "--cache-dir", ROOT / "build" / ".mypy_cache"]
    result = run_python("-m", "mypy", *options, PACKAGE, tmp_path / "use.py", MYPYPATH=str(PACKAGE.parent))
    errors = [line for line in result.stdout.splitlines() if "error:" in line]
    assert len(errors) == 2 and '"side" to "Prism"' in errors[0] and '"aux_lr" to "Mixed"' in errors[1], result.stdout
