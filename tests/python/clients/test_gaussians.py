"""Densification as in 3D Gaussian splatting: points are added and removed, and with them rows of parameters and of their state."""

import prism_optim
import torch
from torch import nn

SHAPES = {"xyz": (3,), "features": (4, 3), "opacity": (1,), "scaling": (3,)}


class Points:
    """Each property of all points is one parameter and one group, found by the group's `name`."""

    def __init__(self, cls, count=6, **options):
        generator = torch.Generator().manual_seed(0)
        self.properties = {name: nn.Parameter(torch.randn(count, *shape, generator=generator)) for name, shape in SHAPES.items()}
        rates = dict(zip(SHAPES, (0.01, 0.02, 0.05, 0.005), strict=True))
        groups = [{"params": [p], "lr": rates[name], "name": name} for name, p in self.properties.items()]
        self.optimizer = cls(groups, lr=0.0, eps=1e-15, **options)

    def _replace(self, change):
        """Puts change(name, tensor, is_state) in place of every parameter and of the state that has its shape."""
        for group in self.optimizer.param_groups:
            name, old = group["name"], group["params"][0]
            state = self.optimizer.state.pop(old)
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = change(name, state[key], True)
            new = nn.Parameter(change(name, old.detach(), False))
            group["params"][0] = new
            self.optimizer.state[new] = state
            self.properties[name] = new

    def add(self, count):
        def grown(name, tensor, is_state):
            fill = torch.zeros if is_state else torch.ones
            return torch.cat([tensor, fill(count, *SHAPES[name])])

        self._replace(grown)

    def prune(self, keep):
        self._replace(lambda name, tensor, is_state: tensor[keep])

    def reset_opacity(self):
        """Replaces the opacity by a fresh tensor of the same shape and sets its state to zero."""
        (group,) = (group for group in self.optimizer.param_groups if group["name"] == "opacity")
        state = self.optimizer.state.pop(group["params"][0])
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(state["exp_avg"]), torch.zeros_like(state["exp_avg_sq"])
        group["params"][0] = self.properties["opacity"] = nn.Parameter(torch.full_like(group["params"][0], -2.0))
        self.optimizer.state[group["params"][0]] = state

    def train(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            sum((p - i).square().mean() for i, p in enumerate(self.properties.values())).backward()
            self.optimizer.step()

    def values(self):
        return {name: p.detach().clone() for name, p in self.properties.items()}


def test_densification_trains_as_with_torch_s_adam():
    ours, theirs = Points(prism_optim.Adam), Points(torch.optim.Adam)
    for points in (ours, theirs):
        points.train(3)
        points.add(4)
        points.train(3)
        points.prune(torch.arange(10) % 3 != 0)
        points.train(2)
        points.reset_opacity()
        points.train(2)
    torch.testing.assert_close(ours.values(), theirs.values(), rtol=1e-4, atol=1e-5)
    assert len(ours.optimizer.state) == len(SHAPES)


def test_a_densified_run_is_saved_and_loaded():
    points, other = Points(prism_optim.Adam), Points(prism_optim.Adam)
    points.train(2)
    points.add(3)
    points.train(1)
    saved = points.optimizer.state_dict()
    other.add(3)
    other.optimizer.load_state_dict(saved)
    for p, q in zip(points.properties.values(), other.properties.values(), strict=True):
        q.data.copy_(p.data)
    points.train(2)
    other.train(2)
    torch.testing.assert_close(points.values(), other.values(), rtol=0, atol=0)
