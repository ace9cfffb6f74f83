"""The routing of parameters, and what inspect says about a step."""

import math
import re

import prism_optim
import pytest
import torch
from optim_cases import assert_same, set_gradients
from prism_optim import Rule
from record_routing import FOLDER, TIMM, TRANSFORMERS, shapes_of, table_by_names, transformers_model
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.conv1 = nn.Conv1d(4, 6, 3)
        self.conv2 = nn.Conv2d(3, 6, 2)
        self.norm = nn.LayerNorm((2, 3))
        self.experts = nn.Parameter(torch.randn(3, 5, 4))
        self.linear = nn.Linear(8, 5)
        self.lm_head = nn.Linear(8, 11, bias=False)


def routed(groups):
    return {name: group for group in groups for name in group["param_names"]}


def test_every_kind_of_module_goes_where_it_should():
    groups = routed(prism_optim.param_groups(Model()))
    prism = {name for name, group in groups.items() if group["optimizer"] == "prism"}
    assert prism == {
        "attention.in_proj_weight", "attention.out_proj.weight", "conv1.weight", "conv2.weight", "experts", "linear.weight",
    }  # fmt: skip
    assert {group["optimizer"] for name, group in groups.items() if name not in prism} == {"adamw"}
    assert set(groups) == {name for name, _ in Model().named_parameters()}


def test_matrices_are_seen_as_the_modules_use_them():
    model = Model()
    optimizer = prism_optim.Mixed(model, covariance="instant", normalize="none")
    state = {name: {k: tuple(v.shape) for k, v in optimizer.state[p].items()} for name, p in model.named_parameters()}
    assert state["attention.in_proj_weight"] == {f"split.{k}.momentum": (8, 8) for k in range(3)}
    assert state["conv1.weight"] == {"momentum": (6, 12)}
    assert state["conv2.weight"] == {"momentum": (6, 12)}
    assert state["experts"] == {"momentum": (3, 5, 4)}


def test_a_fused_projection_is_trained_as_its_parts():
    fused = nn.MultiheadAttention(8, 2)
    parts = [nn.Parameter(part.clone()) for part in fused.in_proj_weight.detach().chunk(3)]
    whole = prism_optim.Mixed(fused, lr=0.1)
    options = {name: value for name, value in whole.param_groups[0].items() if name in ("gamma", "side", "covariance", "coefficients", "normalize")}
    alone = prism_optim.Prism(parts, lr=0.1, **options)
    for seed in range(3):
        set_gradients(list(fused.named_parameters()), seed)
        for part, gradient in zip(parts, fused.in_proj_weight.grad.chunk(3), strict=True):
            part.grad = gradient.clone()
        whole.step()
        alone.step()
    torch.testing.assert_close(fused.in_proj_weight.detach(), torch.cat([p.detach() for p in parts]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head_first", [True, False])
def test_a_head_tied_to_an_embedding_is_one_embedding(head_first):
    embedding, head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(head, embedding) if head_first else nn.Sequential(embedding, head)
    groups = prism_optim.param_groups(model)
    assert [(g["optimizer"], g["param_names"]) for g in groups] == [("adamw", ["0.weight"])]


def test_convolutions_are_depthwise_by_their_groups_not_by_their_shape():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=2), nn.Conv1d(8, 8, 3, groups=8))
    table = prism_optim.routing(model)
    for name, label in [("0", "convolution"), ("1", "depthwise"), ("2", "hidden matrix"), ("3", "depthwise")]:
        assert re.search(rf"^{name}\.weight +[\d ×]+ {label} ", table, re.MULTILINE), table


def test_the_head_can_be_named():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 2))

    def adamw(**options):
        return {name for group in prism_optim.param_groups(model, **options) if group["optimizer"] == "adamw" for name in group["param_names"]}

    biases = {"0.bias", "1.bias", "2.bias"}
    assert adamw() == biases | {"2.weight"}
    assert adamw(head="1") == biases | {"1.weight"}
    assert adamw(head=["0.weight", "1"]) == biases | {"0.weight", "1.weight"}
    assert adamw(head=[]) == biases
    assert "1.weight   6 × 8  head           adamw\n" in prism_optim.Mixed(model, head="1").routing()
    with pytest.raises(ValueError, match="routing: the head 'classifier' must be the name of a parameter or of a module"):
        prism_optim.Mixed(model, head="classifier")
    with pytest.raises(ValueError, match="'head' belongs to the default rules; give rules or head, not both"):
        prism_optim.param_groups(model, rules=[Rule("all", "adamw")], head="1")
    with pytest.raises(ValueError, match="'head' must be given to param_groups"):
        prism_optim.Mixed(prism_optim.param_groups(model), head="1")


def test_what_modules_take_keeps_a_matrix_from_being_the_last_layer():
    for taker in (nn.Conv1d(12, 6, 3), nn.MultiheadAttention(12, 2)):
        model = nn.Sequential(taker, nn.Linear(5, 12))  # an autoencoder's end
        assert re.search(r"^1\.weight +12 × 5 +hidden matrix", prism_optim.routing(model), re.MULTILINE)


def test_named_parameters_are_routed_as_their_model():
    model, tied = Model(), nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.Conv1d(4, 6, 3))
    for module in (model, tied):
        expected = prism_optim.Mixed(module)
        optimizer = prism_optim.Mixed(module.named_parameters())
        assert optimizer.routing() == expected.routing()
        assert [g["param_names"] for g in optimizer.param_groups] == [g["param_names"] for g in expected.param_groups]
    by_names = prism_optim.Mixed([(name, p) for name, p in model.named_parameters() if name != "experts"])
    assert "experts" not in by_names.routing() and "lm_head.weight" in by_names.routing()
    for nameless in (model.parameters(), list(model.parameters())):
        with pytest.raises(TypeError, match=r"routing needs the names of parameters: pass the model, or model.named_parameters\(\), got Parameter"):
            prism_optim.Mixed(nameless)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_public_architectures_are_routed_as_written_down(name):
    """The tables in tests/python/routing are the expectation: read them when they change. record_routing.py writes them."""
    pytest.importorskip("transformers")
    assert prism_optim.routing(transformers_model(name)) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", TIMM)
def test_names_and_shapes_alone_route_as_written_down(name):
    table = (FOLDER / f"{name}.txt").read_text()
    assert table_by_names(shapes_of(table)) == table


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    assert set(routed(prism_optim.param_groups(model))) == {"1.weight", "1.bias"}


def test_the_routing_table_is_printed_on_request():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 8), nn.Linear(8, 10))
    optimizer = prism_optim.Mixed(model)
    assert optimizer.routing() == prism_optim.routing(model)
    assert "0.weight   10 × 4  embedding      adamw\n" in optimizer.routing()
    assert "2.weight   10 × 8  last layer     adamw\n" in optimizer.routing()
    from_groups = prism_optim.Mixed(prism_optim.param_groups(model))
    assert "1.weight   8 × 4   group 0  prism\n" in from_groups.routing()


def test_options_reach_their_groups():
    model = nn.Linear(4, 8)
    both = prism_optim.Mixed(model, lr=0.3, gamma=2.0, aux_lr=0.1, aux_betas=(0.5, 0.6), maximize=True, weight_decay=0.2, aux_weight_decay=0.7)
    prism, adamw = both.param_groups
    assert (prism["lr"], prism["gamma"], prism["weight_decay"], prism["maximize"]) == (0.3, 2.0, 0.2, True)
    assert (adamw["lr"], adamw["betas"], adamw["weight_decay"], adamw["maximize"]) == (0.1, (0.5, 0.6), 0.7, True)
    muon, adam = prism_optim.Mixed(prism_optim.param_groups(model, lr=0.3, matrices="muon", rest="adam", aux_eps=1e-3)).param_groups
    assert (muon["optimizer"], muon["lr"], adam["optimizer"], adam["eps"]) == ("muon", 0.3, "adam", 1e-3)


def test_adamw_has_the_betas_of_language_models_in_mixed_and_torchs_alone():
    model = nn.Linear(4, 8)
    weight = nn.Parameter(torch.zeros(3))
    assert {group["betas"] for group in prism_optim.Mixed(prism_optim.param_groups(model, matrices="adamw")).param_groups} == {(0.9, 0.95)}
    assert prism_optim.Mixed(model).param_groups[1]["betas"] == (0.9, 0.95)
    assert prism_optim.Mixed([{"params": [weight], "optimizer": "adamw"}]).param_groups[0]["betas"] == (0.9, 0.95)
    assert prism_optim.Mixed(model, aux_betas=(0.9, 0.999)).param_groups[1]["betas"] == (0.9, 0.999)
    assert prism_optim.AdamW([weight]).param_groups[0]["betas"] == (0.9, 0.999)


def test_rules_can_be_replaced_and_nothing_falls_through():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    rules = [Rule("first", "soap", r"^0\.weight$", options={"refresh": 3}), Rule("others", "adamw")]
    groups = routed(prism_optim.param_groups(model, rules=rules))
    assert (groups["0.weight"]["optimizer"], groups["0.weight"]["refresh"]) == ("soap", 3)
    assert groups["1.weight"]["optimizer"] == "adamw"
    with pytest.raises(RuntimeError, match="routing: no rule matches '0.bias' of shape \\[8\\]; add a rule for it"):
        prism_optim.param_groups(model, rules=[Rule("matrices", "prism", min_dimensions=2)])


def test_mistakes_are_named():
    model = nn.Linear(4, 8)
    with pytest.raises(ValueError, match="param_groups: unknown option 'gama'"):
        prism_optim.param_groups(model, gama=1)
    with pytest.raises(ValueError, match="param_groups: unknown option 'aux_maximize'"):
        prism_optim.param_groups(model, aux_maximize=True)
    with pytest.raises(ValueError, match="unknown optimizer 'sgd'; expected one of adagrad, adam"):
        prism_optim.param_groups(model, matrices="sgd")
    with pytest.raises(ValueError, match="a group of Mixed must name its optimizer"):
        prism_optim.Mixed([{"params": [model.weight], "optimizer": "prism"}, {"params": [model.bias]}])
    with pytest.raises(ValueError, match="Prism got a group for optimizer 'adamw'; use Mixed"):
        prism_optim.Prism(prism_optim.param_groups(model))
    with pytest.raises(ValueError, match="'gamma' must be given to param_groups"):
        prism_optim.Mixed(prism_optim.param_groups(model), gamma=3.0)


def make_inspected(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    optimizer = prism_optim.Mixed(model, head=[], solver="exact", **options)
    for seed in range(3):
        set_gradients(list(model.named_parameters()), seed)
        optimizer.step()
    return model, optimizer


def test_inspect_finds_the_law_of_the_gain():
    model, optimizer = make_inspected(gamma=1.5)
    spectra = prism_optim.inspect(optimizer)
    assert list(spectra) == ["0.weight", "1.weight"]
    for name, found in spectra.items():
        torch.testing.assert_close(found.gain, (1 + 1.5**2 / found.snr**2).rsqrt(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.gain, found.theory, rtol=1e-4, atol=1e-5)
        assert math.isclose(found.weight_norm.item(), model.get_parameter(name).norm().item(), rel_tol=1e-6)
        assert len(found.singular_values) == min(model.get_parameter(name).shape)


def test_inspect_reads_scaled_gradients_as_the_step_did():
    model, optimizer = make_inspected()
    other, scaled = make_inspected()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        q.grad = p.grad * 256
    scaled.grad_scale = torch.tensor(256.0)  # as GradScaler sets it
    for one in (optimizer, scaled):
        one.step()
    plain = prism_optim.inspect(optimizer)
    torch.testing.assert_close(prism_optim.inspect(scaled)["0.weight"].gain, plain["0.weight"].gain, rtol=1e-6, atol=0)


def test_inspect_needs_gradients_and_an_optimizer_of_the_package():
    _, optimizer = make_inspected()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"inspect: no parameter has a gradient; call it between step\(\) and zero_grad\(\)"):
        prism_optim.inspect(optimizer)
    with pytest.raises(TypeError, match="inspect: expected an optimizer of prism_optim, got SGD"):
        prism_optim.inspect(torch.optim.SGD([torch.ones(1)]))


def test_plot_draws_gain_over_snr():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    _, optimizer = make_inspected()
    axes = prism_optim.plot(prism_optim.inspect(optimizer))
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("SNR", "gain", "log")
    assert len(axes.collections) == 2


def test_skipped_steps_are_counted_and_saved():
    model = nn.Linear(4, 8)
    optimizer = prism_optim.Mixed(model, skip_nonfinite=True)
    model.weight.grad, model.bias.grad = torch.ones(8, 4), torch.full((8,), math.nan)
    before = model.weight.detach().clone()
    optimizer.step()  # one bad gradient stops both groups
    assert_same(model.weight.detach(), before)
    other = prism_optim.Mixed(model, skip_nonfinite=True)
    other.load_state_dict(optimizer.state_dict())
    assert other.skipped.item() == optimizer.skipped.item() == 1
