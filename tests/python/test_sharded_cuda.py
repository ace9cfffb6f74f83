"""Parameters that several processes share, on one GPU."""

import prism_optim
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import run
from sharded import OPTIONS, Net, filled, optimizer_of, whole
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

ON_THE_GPU = ("prism", "inputs", "instant", "ema", "every", "muon")  # rules with kernels
GPU_BYTES = {"prism": 4, "inputs": 4, "instant": 4, "ema": 4, "every": 4, "muon": 2}  # of an element on its way to the owner


@pytest.mark.gpu
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_companions_do_not_change_what_the_kernels_compute(options):
    """A matrix alone, and in stacks of 2, 3 and 8: with several processes the stacks of an owner differ from those of one process."""
    kind, more = OPTIONS[options]["matrices"], {key: value for key, value in OPTIONS[options].items() if key not in ("matrices", "master_weights")}
    for shape in ((64, 64), (100, 36), (256, 512), (3, 48, 32), (16, 200)):
        alone = None
        for count in (1, 2, 3, 8):
            stack = [nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(i)).cuda()) for i in range(count)]
            stack.insert(count // 2, stack.pop(0))
            groups = [{"params": [(str(i), p) for i, p in enumerate(stack)], "optimizer": kind, **more}]
            optimizer = prism_optim.Mixed(groups)
            watched = stack[count // 2]
            for step in range(3):
                for i, p in enumerate(stack):
                    seed = 1000 + step if p is watched else 100 * step + i
                    p.grad = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()
                optimizer.step()
            result = [watched.detach(), *optimizer.state[watched].values()]
            alone = alone or result
            assert all(map(torch.equal, result, alone)), (shape, count)


def cuda_rows(model):
    """Rows of each parameter on the GPU, made without a collective."""
    mesh, size, rank = init_device_mesh("cuda", (dist.get_world_size(),)), dist.get_world_size(), dist.get_rank()
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            chunks = p.data.chunk(size)
            local = (chunks[rank] if rank < len(chunks) else p.data[:0]).clone().cuda()
            shard = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=p.shape, stride=p.stride())
            module.register_parameter(name, nn.Parameter(shard))


def on_one_gpu(rank, size, folder):
    torch.cuda.set_device(0)
    for options in ON_THE_GPU:
        for cut in (cuda_rows, None):
            model = Net()
            if cut:
                cut(model)
            else:
                model.cuda()
            optimizer = optimizer_of(model, options, own=None if cut else dist.group.WORLD)
            for step in range(5):
                grads = filled(Net(), 100 + step)
                if cut:
                    cut(grads)
                else:
                    grads.cuda()
                for p, gradient in zip(model.parameters(), grads.parameters(), strict=True):
                    p.grad = gradient.detach()
                optimizer.step()
            assert "to its owner" in optimizer.plan() if cut else "from its owner" in optimizer.plan()
            weights = {name: (p._local_tensor if cut else p).detach().cpu() for name, p in model.named_parameters()}
            torch.save(weights, f"{folder}/{options}.{'cut' if cut else 'own'}.{rank}")
        torch.save(sent_for_one_matrix(options), f"{folder}/{options}.sent.{rank}")


def sent_for_one_matrix(options):
    """The bytes that this process sends at each of three steps of a 64×64 matrix."""
    model, sent = nn.ModuleDict({"hidden": nn.Linear(64, 64, bias=False)}), [0]
    cuda_rows(model)
    more = {key: value for key, value in OPTIONS[options].items() if key != "matrices"}
    optimizer = prism_optim.Mixed([{"params": list(model.named_parameters()), "optimizer": OPTIONS[options]["matrices"], **more}])
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        sent.append(optimizer._engine.bytes_sent())
    return torch.tensor(sent).diff()


@pytest.fixture(scope="module")
def two_ranks_on_one_gpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    run(__file__, "on_one_gpu", 2, folder)
    return folder


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["cut", "own"])
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_two_ranks_on_one_gpu_train_as_one_process(two_ranks_on_one_gpu, options, how):
    """With gloo. The fp16 operands that travel are those that the kernels of one process form."""
    model = Net().cuda()
    optimizer = optimizer_of(model, options)
    for step in range(5):
        for p, gradient in zip(model.parameters(), filled(Net(), 100 + step).parameters(), strict=True):
            p.grad = gradient.detach().cuda()
        optimizer.step()
    parts = [torch.load(two_ranks_on_one_gpu / f"{options}.{how}.{rank}") for rank in range(2)]
    differing = {}
    for name, p in model.named_parameters():
        if how == "own":
            assert torch.equal(parts[0][name], parts[1][name])
        found = parts[0][name] if how == "own" else torch.cat([part[name] for part in parts])
        if not torch.equal(found, p.detach().cpu()):
            differing[name] = (found - p.detach().cpu()).abs().max().item()
    assert differing == {}


@pytest.mark.gpu
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_operands_travel_to_their_owner_in_fp16(two_ranks_on_one_gpu, options):
    """Half of the matrix goes to the owner, and half of the update back, in float32."""
    sent = sum(torch.load(two_ranks_on_one_gpu / f"{options}.sent.{rank}") for rank in range(2))
    to = [GPU_BYTES[options], *(GPU_BYTES[options] if options != "every" else 2 for _ in range(2))]  # D only at the first of three steps
    assert sent.tolist() == [(bytes + 4) * 64 * 32 for bytes in to]


@pytest.mark.gpu
def test_one_process_with_nccl_trains_as_without(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        nets = [Net().cuda(), Net().cuda(), Net().cuda()]
        fully_shard(nets[1], mesh=init_device_mesh("cuda", (1,)))
        optimizers = [optimizer_of(nets[0]), optimizer_of(nets[1]), optimizer_of(nets[2], own=dist.group.WORLD)]
        for step in range(3):
            for net, optimizer in zip(nets, optimizers, strict=True):
                for p, gradient in zip(net.parameters(), filled(Net(), 100 + step).cuda().parameters(), strict=True):
                    value = gradient.detach()
                    p.grad = distribute_tensor(value, p.device_mesh, p.placements) if isinstance(p, DTensor) else value
                optimizer.step()
        for net in nets[1:]:
            for p, expected in zip(net.parameters(), nets[0].parameters(), strict=True):
                assert torch.equal(whole(p.detach()), expected.detach())
        dcp.save({"optimizer": get_optimizer_state_dict(nets[1], optimizers[1])}, checkpoint_id=tmp_path / "state")
    finally:
        dist.destroy_process_group()
