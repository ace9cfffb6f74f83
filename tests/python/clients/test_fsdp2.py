"""accelerate, transformers' Trainer and Lightning with FSDP2 in two processes: the examples, and resuming.

The file is also the script that the processes run: `fsdp_on_cpu.py test_fsdp2.py FUNCTION FOLDER`.
"""

import os
import pathlib
import re
import subprocess
import sys

import prism_optim
import pytest
import torch

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"


def run_python(*arguments):
    paths = [str(pathlib.Path(prism_optim.__file__).parents[1]), str(HERE), str(HERE.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    result = subprocess.run([sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def torchrun(*arguments):
    return run_python("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", HERE / "fsdp_on_cpu.py", *arguments)


def losses(output):
    return [float(text) for text in re.findall(r"^loss ([0-9.]+)$", output, re.MULTILINE)]


@pytest.mark.parametrize("name", ["accelerate", "trainer"])
def test_examples_run(name):
    output = torchrun(EXAMPLES / f"fsdp2_{name}.py")
    assert "to its owner" in output
    found = losses(output)
    assert found[-1] < 0.8 * found[0]


def test_the_example_of_lightning_runs_and_resumes(tmp_path):
    example = EXAMPLES / "fsdp2_lightning.py"
    through = run_python(example, "--epochs", 4)
    assert "to its owner" in through
    run_python(example, "--epochs", 2, "--folder", tmp_path / "state")
    resumed = run_python(example, "--epochs", 4, "--resume", tmp_path / "state")
    assert losses(through)[2:] == losses(resumed)
    assert losses(through)[-1] < 0.8 * losses(through)[0]


# ---- what the processes run


def with_accelerate(folder):
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin
    from tiny_models import regression, tiny_net
    from torch.distributed.tensor import DTensor

    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap"))
    x, y = (part[accelerator.process_index :: 2] for part in regression())

    def prepared(seed):
        model = tiny_net(seed)
        optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.005)
        return *accelerator.prepare(model, optimizer), optimizer

    def train(model, optimizer, steps):
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
        return found

    model, optimizer, ours = prepared(0)
    first = train(model, optimizer, 4)
    assert all(isinstance(p, DTensor) for group in ours.param_groups for p in group["params"])
    assert "to its owner" in ours.plan()
    assert set(ours.state) == {p for group in ours.param_groups for p in group["params"]}  # nothing of the unsharded model is left
    accelerator.save_state(folder)
    rest = train(model, optimizer, 4)
    assert rest[-1] < first[0]
    accelerator._models.clear()
    accelerator._optimizers.clear()
    other, resumed, _ = prepared(1)
    accelerator.load_state(folder)
    assert train(other, resumed, 4) == rest
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), two.full_tensor())
    accelerator.end_training()


def with_trainer(folder):
    from test_trainer import qwen2, trainer
    from torch.distributed.tensor import DTensor

    def make(name, seed):
        model = qwen2(seed)
        how = (prism_optim.Mixed, {"model": model, "lr": 0.02, "aux_lr": 0.005, "weight_decay": 0.01})
        config = {"version": 2, "transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]}
        return trainer(f"{folder}/{name}", model=model, how=how, fsdp=True, fsdp_config=config, max_grad_norm=1.0)

    through, resumed = make("a", 0), make("b", 3)
    through.train()
    resumed.train(resume_from_checkpoint=f"{folder}/a/checkpoint-4")
    for one, two in zip(through.model.parameters(), resumed.model.parameters(), strict=True):
        assert isinstance(one, DTensor)
        assert torch.equal(one.full_tensor(), two.full_tensor())
    assert "to its owner" in through.optimizer.optimizer.plan()


@pytest.mark.parametrize("function", ["with_accelerate", "with_trainer"])
def test_a_saved_state_continues_bit_for_bit(function, tmp_path):
    torchrun(__file__, function, tmp_path)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
