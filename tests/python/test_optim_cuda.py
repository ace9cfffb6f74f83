"""What holds on a GPU: the same updates as on the host, and steps that never wait for the device. Defined only where there is a GPU."""

import copy

import pytest
import torch

import prism_optim

ALL = ["Prism", "Muon", "TikhonovMuon", "AdamW", "Adam", "AdaGrad", "RMSprop", "SSD", "RMSspectral", "ADAspectral", "Shampoo", "SOAP"]
NEVER_WAITING = [
    ("Prism", {}),
    ("Prism", {"covariance": "ema"}),
    ("Prism", {"bias_correction": True, "side": "left"}),
    ("Muon", {}),
    ("TikhonovMuon", {}),
    ("AdamW", {}),
    ("Adam", {}),
    ("AdaGrad", {}),
    ("RMSprop", {}),
]


SHAPES = [(64, 48), (64, 48), (300, 520), (32, 256)]


def make_parameters(device, dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64).to(device, dtype)) for shape in shapes]


def set_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.device, p.dtype)


if torch.cuda.is_available():

    @pytest.mark.parametrize("name", ALL)
    def test_the_device_and_the_host_take_the_same_steps(name):
        weights = {}
        # SOAP's Adam depends on the basis, which is arbitrary in the null space of the first gradient: square ones have none.
        shapes = [(64, 64), (64, 64), (300, 300)] if name == "SOAP" else SHAPES
        for device in ("cpu", "cuda"):
            parameters = make_parameters(device, torch.float64, shapes)
            optimizer = getattr(prism_optim, name)(parameters, lr=0.01)
            for step in range(5):
                set_gradients(parameters, step)
                optimizer.step()
            weights[device] = [p.detach().cpu() for p in parameters]
        for host, device in zip(weights["cpu"], weights["cuda"], strict=True):
            torch.testing.assert_close(device, host, rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("name, options", NEVER_WAITING, ids=lambda value: str(value))
    @pytest.mark.parametrize("skip", [False, True], ids=["plain", "skip_nonfinite"])
    def test_a_step_never_waits_for_the_device(name, options, skip):
        parameters = make_parameters("cuda")
        optimizer = getattr(prism_optim, name)(parameters, lr=0.01, skip_nonfinite=skip, weight_decay=0.1, **options)
        for step in range(3):
            set_gradients(parameters, step)
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                optimizer.step()
            finally:
                torch.cuda.set_sync_debug_mode("default")

    @pytest.mark.parametrize("name", ALL)
    def test_a_non_finite_gradient_changes_nothing_on_the_device(name):
        parameters = make_parameters("cuda")
        optimizer = getattr(prism_optim, name)(parameters, lr=0.01, skip_nonfinite=True, weight_decay=0.1)
        set_gradients(parameters, 0)
        optimizer.step()
        weights = [p.detach().clone() for p in parameters]
        state = copy.deepcopy(optimizer.state_dict()["state"])
        parameters[1].grad[3, 5] = float("nan")
        optimizer.step()
        assert optimizer.skipped.item() == 1
        assert all(torch.equal(p, before) for p, before in zip(parameters, weights, strict=True))
        for index, fields in optimizer.state_dict()["state"].items():
            for field, value in fields.items():
                assert torch.equal(value, state[index][field]), (index, field)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_sixteen_bit_weights_train_with_float32_state(dtype):
        parameters = make_parameters("cuda", dtype)
        optimizer = prism_optim.Prism(parameters, lr=0.01, master_weights=True)
        set_gradients(parameters, 0)
        optimizer.step()
        for p in parameters:
            assert p.dtype == dtype and torch.isfinite(p).all()
            assert optimizer.state[p]["momentum"].dtype == torch.float32
            torch.testing.assert_close(optimizer.state[p]["master"].to(dtype), p.detach(), rtol=0, atol=0)

    def test_a_rate_on_the_device_is_read_at_each_step():
        parameters = make_parameters("cuda")
        optimizer = prism_optim.Prism(parameters, lr=torch.tensor(0.0, device="cuda"))
        before = [p.detach().clone() for p in parameters]
        set_gradients(parameters, 0)
        optimizer.step()
        assert all(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))
        optimizer.param_groups[0]["lr"].fill_(0.01)
        optimizer.step()
        assert not any(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))

    def test_a_moved_model_takes_its_state_along():
        model = torch.nn.Linear(48, 64, bias=False)
        optimizer = prism_optim.Prism(model.parameters(), lr=0.01)
        set_gradients(model.parameters(), 0)
        optimizer.step()
        momentum = optimizer.state[model.weight]["momentum"].clone()
        model.to("cuda")
        set_gradients(model.parameters(), 1)
        optimizer.step()
        after = optimizer.state[model.weight]["momentum"]
        assert after.is_cuda
        torch.testing.assert_close(after.cpu(), torch.lerp(momentum, model.weight.grad.cpu(), 0.05))
