"""The CUDA kernels behind prism_optim: accurate, reproducible bit for bit, and the same function as the plain code on the CPU."""

import prism_optim
import pytest
import torch
from optim_accuracy import BETA, SETS, Exact, error, literal_bf16, update_of

pytestmark = pytest.mark.gpu


def generator(seed=0):
    return torch.Generator("cuda").manual_seed(seed)


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=generator(seed), device="cuda", dtype=dtype)


def with_singular_values(m, n, sigma, seed):
    k = len(sigma)
    left, right = (torch.linalg.qr(randn(side, k, seed=seed + i))[0] for i, side in enumerate((m, n)))
    return (left * sigma) @ right.T


def spectra(m, n):
    k = min(m, n)
    i = torch.arange(1, k + 1, device="cuda", dtype=torch.float64)
    return {
        "random": randn(m, n, seed=1),
        "i^-2": with_singular_values(m, n, i**-2, 2),
        "rank 1": with_singular_values(m, n, (i == 1).double(), 3),
        "rank k/2": with_singular_values(m, n, (randn(k, seed=4).abs() + 0.2) * (i <= k // 2), 4),
        "condition 1e6": with_singular_values(m, n, torch.logspace(0, -6, k, device="cuda", dtype=torch.float64), 5),
        "spike": with_singular_values(m, n, torch.where(i == 1, 1.0, 0.01 * (randn(k, seed=7).abs() + 0.5)), 6),
    }


def kernel_update(T, D, gamma, **options):
    """The update for this signal and innovation: momentum is set so that the step finds T and D."""
    G = T + D
    return update_of(G, (T - (1 - BETA) * G) / BETA, gamma, nesterov=False, **options)


@pytest.mark.parametrize("coefficients", SETS)
@pytest.mark.parametrize("gamma", [0, 0.1, 1, 10])
@pytest.mark.parametrize("shape", [(700, 512), (512, 512), (128, 520), (96, 64), (16, 520), (200, 24)], ids=str)
def test_the_update_is_closer_to_float64_than_the_literal_iteration_in_bfloat16(shape, gamma, coefficients):
    report = []
    for name, T in spectra(*shape).items():
        T = T.float().double()
        D = randn(*shape, seed=9)
        D = (D * T.norm() / D.norm()).float().double()
        exact = Exact(T, D, gamma)
        ours = error(kernel_update(T, D, gamma, coefficients=coefficients), exact.polynomial(coefficients))
        literal = error(literal_bf16(T, D, gamma), exact.polynomial("jordan"))
        report.append((name, f"{ours:.1e}", f"{literal:.1e}", ours <= 1.2 * literal))
    print(report)
    assert all(line[-1] for line in report), report


@pytest.mark.parametrize("coefficients", SETS)
def test_so_is_the_update_of_a_large_matrix_whose_low_halves_are_in_bytes(coefficients):
    m, n = 2100, 2056
    i = torch.arange(1, n + 1, device="cuda", dtype=torch.float64)
    for name, sigma in {"i^-2": i**-2, "spike": torch.where(i == 1, 1.0, 0.01 * (randn(n, seed=7).abs() + 0.5))}.items():
        T = with_singular_values(m, n, sigma, 6).float().double()
        D = randn(m, n, seed=9) * T.norm() / (m * n) ** 0.5
        ours = error(kernel_update(T, D, 0, coefficients=coefficients), Exact(T, D, 0).polynomial(coefficients))
        literal = error(literal_bf16(T, D, 0), Exact(T, D, 0).polynomial("jordan"))
        print(name, f"{ours:.1e} {literal:.1e}")
        assert ours <= 1.2 * literal, (name, ours, literal)


@pytest.mark.parametrize("coefficients", SETS)
@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_the_gain_of_a_written_step_is_the_law_times_the_polynomial(gamma, coefficients):
    """From the change of the weights: along each eigenvector v of TᵀT + γ²DᵀD, ‖ΔW v‖ is ‖Tv‖/√λ · p(√λ)."""
    T, D = spectra(700, 512)["i^-2"] + 0.01 * randn(700, 512, seed=8) / 500, randn(700, 512, seed=9) / 500
    O = kernel_update(T, D, gamma, coefficients=coefficients)
    sigma, V = torch.linalg.svd(torch.cat([T, gamma * D]), full_matrices=False)[1:]
    polynomials, p, bound = SETS[coefficients]
    x = sigma / (bound * sigma.pow(p).sum().pow(1 / p))
    for c in polynomials:
        x = x * sum(a * x ** (2 * i) for i, a in enumerate(c))
    law = (T @ V.T).norm(dim=0) / sigma
    gain = (O @ V.T).norm(dim=0)
    assert 1 - (gain - law * x).square().sum() / (gain - gain.mean()).square().sum() >= 0.99


@pytest.mark.parametrize("shape", [(96, 64), (96, 16)], ids=str)
@pytest.mark.parametrize("magnitude", [1e-30, 1e-10, 1e10, 1e30])
def test_the_update_does_not_depend_on_the_gradients_magnitude(magnitude, shape):
    T, D = randn(*shape, seed=1), randn(*shape, seed=2)
    plain = kernel_update(T, D, 1.0)
    torch.testing.assert_close(kernel_update(T * magnitude, D * magnitude, 1.0), plain, rtol=0, atol=2e-3)


@pytest.mark.parametrize("gamma", [0, 1])
@pytest.mark.parametrize("place", [0, 1234, 25_000, 102_399])
def test_an_element_far_above_the_others_is_not_missed(place, gamma):
    """The kernels guess the scales of the operands from a sample of the elements. Most of these places are not in it."""
    for large, rest in ((1e6, 1), (1e-9, 0)):
        T, D = rest * randn(320, 320, seed=1), rest * randn(320, 320, seed=2)
        T.view(-1)[place] = large
        T, D = T.float().double(), D.float().double()
        O, exact = kernel_update(T, D, gamma, coefficients="minimax9"), Exact(T, D, gamma).polynomial("minimax9")
        torch.testing.assert_close(O, exact, rtol=0, atol=5e-3)


SHAPES = [(1, 1), (1, 7), (7, 1), (7, 7), (129, 65), (65, 129), (300, 260), (40, 24, 16), (5000, 129), (129, 5000), (3, 5, 2), (16, 1000), (1000, 16), (32, 33)]
OPTIONS = {
    "prism": ("Prism", {}),
    "prism-plain-momentum": ("Prism", {"nesterov": False, "gamma": 0.5}),
    "prism-minimax9": ("Prism", {"coefficients": "minimax9"}),
    "prism-polar_express": ("Prism", {"coefficients": "polar_express"}),
    "prism-you": ("Prism", {"coefficients": "you"}),
    "prism-bias_correction": ("Prism", {"bias_correction": True}),
    "prism-gamma_schedule": ("Prism", {"gamma_schedule": {"kind": "linear", "total": 10}}),
    "prism-left": ("Prism", {"side": "left"}),
    "prism-right": ("Prism", {"side": "right"}),
    "prism-right-minimax9": ("Prism", {"side": "right", "coefficients": "minimax9", "gamma_schedule": {"kind": "linear", "total": 10}}),
    "prism-long": ("Prism", {"side": "long"}),
    "prism-balanced": ("Prism", {"side": "balanced"}),
    "prism-balanced-ema": ("Prism", {"side": "balanced", "covariance": "ema", "covariance_beta": 0.9, "gamma": 0.5}),
    "prism-rows": ("Prism", {"normalize": "rows"}),
    "prism-fixed_norm": ("Prism", {"fixed_norm": True}),
    "prism-right-rows-fixed_norm": ("Prism", {"gamma": 0.1, "side": "right", "normalize": "rows", "row_beta": 0.5, "fixed_norm": True, "weight_decay": 0.1}),
    "prism-maximize": ("Prism", {"maximize": True, "weight_decay": 0.1}),
    "prism-ema": ("Prism", {"covariance": "ema", "covariance_beta": 0.9}),
    "prism-ema-seldom": ("Prism", {"covariance": "ema", "covariance_beta": 0.9, "covariance_every": 2}),
    "prism-whitened": ("Prism", {"covariance": "ema", "covariance_beta": 0.9, "side": "whitened", "root_every": 1, "gamma": 0.5}),
    "prism-whitened-seldom": (
        "Prism",
        {"covariance": "ema", "covariance_beta": 0.9, "covariance_every": 2, "side": "whitened", "root_every": 2, "coefficients": "minimax9", "normalize": "rows"},
    ),
    "prism-whitened-gamma_schedule": (
        "Prism",
        {"covariance": "ema", "side": "whitened", "root_every": 4, "gamma": 0.5, "gamma_schedule": {"kind": "linear", "total": 10}},
    ),
    "muon": ("Muon", {"weight_decay": 0.1}),
    "muon-rows": ("Muon", {"normalize": "rows", "row_beta": 0.5}),
    "muon-minimax9": ("Muon", {"coefficients": "minimax9"}),
    "tikhonov": ("TikhonovMuon", {"damping": 0.5}),
    "tikhonov-absolute": ("TikhonovMuon", {"damping_absolute": 0.5}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "adamw-amsgrad": ("AdamW", {"amsgrad": True}),
    "adam": ("Adam", {"weight_decay": 0.1}),
    "adagrad": ("AdaGrad", {"weight_decay": 0.1, "lr_decay": 0.1}),
    "rmsprop": ("RMSprop", {"weight_decay": 0.1}),
    "rmsprop-centered": ("RMSprop", {"centered": True, "momentum": 0.9}),
}


def run(kind, options, device, *, steps=3, dtype=torch.float32, shapes=SHAPES, lr=0.02):
    make = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=make).to(dtype).to(device)) for s in shapes]
    optimizer = getattr(prism_optim, kind)(params, lr=lr, **options)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=make).to(dtype).to(device)
        optimizer.step()
    return [p.detach() for p in params], [optimizer.state[p] for p in params]


def whole_root(state):
    """The state with the root as one matrix, over its largest entry: kernels and plain code divide it from its scale in other ways."""
    if "root" not in state:
        return state
    root = state["root"].double() / state["root_scale"].double()
    return {key: value for key, value in state.items() if key != "root_scale"} | {"root": root / root.abs().max()}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_three_steps_are_those_of_the_plain_code(name, dtype):
    kind, options = OPTIONS[name]
    options = options | ({"master_weights": True} if dtype == torch.bfloat16 else {})
    shapes = [shape for shape in SHAPES if "whitened" not in name or shape[-1] < 5000]  # a root that large takes minutes on the processor
    there, there_state = run(kind, options, "cuda", dtype=dtype, shapes=shapes)
    here, here_state = run(kind, options, "cpu", dtype=dtype, shapes=shapes)
    spectral = kind in ("Prism", "Muon", "TikhonovMuon")
    for shape, actual, expected, state, wanted in zip(shapes, there, here, there_state, here_state, strict=True):
        assert set(state) == set(wanted)
        state, wanted = (whole_root(x) for x in (state, wanted))
        for key, value in wanted.items():
            # Products are formed on fp16 operands; a master that crosses a rounding boundary of its weight decays another weight.
            tolerance = 2e-2 if (spectral and key in ("master", "row_moment")) or dtype == torch.bfloat16 else 2e-3 if key == "covariance" else 1e-5
            if key == "root":  # where Ĉ still has no noise, rounding changes the slope of Jordan's polynomials by a tenth
                tolerance = 0.2
            torch.testing.assert_close(state[key].cpu(), value, rtol=tolerance, atol=tolerance, msg=lambda m, k=key, s=shape: f"{s} {k}: {m}")
        apart = (expected - actual.cpu()).abs().max() / 0.02
        rounding = expected.abs().max() / 128 / 0.02 if dtype == torch.bfloat16 else 0
        assert apart <= (0.03 * max(shape) ** 0.5 if spectral else 5e-3) + rounding, (shape, apart)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_without_damping_prism_is_muon_bit_for_bit(dtype):
    prism, _ = run("Prism", {"gamma": 0, "weight_decay": 0.1}, "cuda", dtype=dtype)
    muon, _ = run("Muon", {"weight_decay": 0.1}, "cuda", dtype=dtype)
    torch.testing.assert_close(prism, muon, rtol=0, atol=0)


@pytest.mark.parametrize("name", OPTIONS)
def test_two_runs_are_bit_equal(name):
    kind, options = OPTIONS[name]
    first, second = (run(kind, options, "cuda") for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_a_zero_gradient_gives_a_zero_update():
    weight = torch.nn.Parameter(torch.ones(40, 30, device="cuda"))
    optimizer = prism_optim.Prism([weight], lr=1.0, coefficients="minimax9")
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert (weight == 1).all()


def test_a_parameter_without_gradient_stays_as_it_is():
    params = [torch.nn.Parameter(randn(20, 12, seed=i, dtype=torch.float32)) for i in range(3)]
    optimizer = prism_optim.Prism(params, lr=0.1)
    for p in (params[0], params[2]):
        p.grad = torch.ones_like(p)
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert torch.equal(params[1], before[1]) and (optimizer.state[params[1]]["momentum"] == 0).all()
    assert not torch.equal(params[0], before[0]) and not torch.equal(params[2], before[2])
    assert (optimizer.state[params[2]]["momentum"] != 0).all()


def test_every_matrix_refreshes_its_covariance_by_its_own_count():
    """One of two equal shapes misses the gradient of step 2, so that its refreshes come a step later. What is not refreshed must not
    depend on the scratch memory, which is NaN before each step."""

    def states(device):
        make = torch.Generator().manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(96, 64, generator=make).to(device)) for _ in range(2)]
        optimizer = prism_optim.Prism(params, lr=0.02, covariance="ema", covariance_beta=0.9, covariance_every=3)
        seen = []
        for step in range(1, 8):
            for i, p in enumerate(params):
                p.grad = None if (i, step) == (1, 2) else torch.randn(96, 64, generator=make).to(device)
            for elements in (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23):  # the allocator hands these out again
                torch.full((elements,), float("nan"), device=device)
            optimizer.step()
            seen += [optimizer.state[p]["covariance"].clone().cpu() for p in params]
            seen += [p.detach().clone().cpu() for p in params]
        return seen

    there, here = states("cuda"), states("cpu")
    for actual, expected in zip(there, here, strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-3)
    covariances = [there[4 * step : 4 * step + 2] for step in range(7)]
    for i, refreshes in enumerate([{4, 7}, {5}]):  # after the first, at step 1
        for step in range(2, 8):
            stays = torch.equal(covariances[step - 1][i], covariances[step - 2][i])
            assert stays == (step not in refreshes), (i, step)


@pytest.mark.parametrize("every", [(1, 1), (4, 1), (1, 4), (4, 4)], ids=str)
def test_whitened_steps_go_on_from_saved_state_on_either_device(every):
    """Six steps: all on the GPU; the last three after loading the state there; and on the processor from the GPU's state, and back."""
    shapes = [(24, 96), (76, 301), (48, 32)]
    options = {"covariance": "ema", "side": "whitened", "gamma": 0.3, "coefficients": "minimax9", "normalize": "rows", "lr": 0.02}
    options |= {"covariance_every": every[0], "root_every": every[1]}

    def steps(params, optimizer, first, last):
        for step in range(first, last):
            make = torch.Generator().manual_seed(step)
            for p in params:
                p.grad = torch.randn(p.shape, generator=make).to(p.device)
            optimizer.step()

    def begin():
        make = torch.Generator().manual_seed(99)
        params = [torch.nn.Parameter(torch.randn(s, generator=make).cuda()) for s in shapes]
        return params, prism_optim.Prism(params, **options)

    def moved(params, optimizer, device):
        params = [torch.nn.Parameter(p.detach().clone().to(device)) for p in params]
        other = prism_optim.Prism(params, **options)
        other.load_state_dict(optimizer.state_dict())
        return params, other

    whole = begin()
    steps(*whole, 0, 6)
    first = begin()
    steps(*first, 0, 3)
    resumed, there = moved(*first, "cuda"), moved(*first, "cpu")
    steps(*resumed, 3, 6)
    torch.testing.assert_close([p.detach() for p in resumed[0]], [p.detach() for p in whole[0]], rtol=0, atol=0)
    steps(*there, 3, 5)
    back = moved(*there, "cuda")
    steps(*back, 5, 6)
    for shape, a, b, start in zip(shapes, back[0], whole[0], first[0], strict=True):
        assert (a - b).norm() <= 0.1 * (b - start).norm(), (shape, (a - b).norm() / (b - start).norm())


# Not captured: the smaller form of a long left side, and what has no kernels.
NOT_CAPTURED = {"prism-left", "prism-long", "tikhonov-absolute"}
CAPTURED = [name for name in OPTIONS if name not in NOT_CAPTURED]


def replayed(kind, options, *, graphs, steps=4):
    """Parameters after steps whose gradients, learning rate and γ change, each step eager or a replay of one graph."""
    make = torch.Generator("cuda").manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=make, device="cuda")) for s in SHAPES]
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer = getattr(prism_optim, kind)(params, lr=0.02, capturable=True, **options)
    graph = None
    for step in range(steps):
        for p in params:
            p.grad.copy_(torch.randn(p.shape, generator=make, device="cuda"))
        for group in optimizer.param_groups:
            group["lr"].fill_(0.02 / (1 + step))
            if "gamma" in group and "gamma" not in options:
                group["gamma"].fill_(1 + step)
        if not graphs or step == 0:
            optimizer.step()
            continue
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                optimizer.step()
        graph.replay()
    return [p.detach() for p in params], [optimizer.state[p] for p in params]


@pytest.mark.parametrize("coefficients", SETS)
@pytest.mark.parametrize("gamma", [0.1, 1, 10])
@pytest.mark.parametrize("shape", [(128, 512), (512, 1408), (65, 301)], ids=str)
def test_a_long_right_side_is_closer_to_float64_than_the_literal_iteration_in_bfloat16(shape, gamma, coefficients):
    """Through the 2m×2m Gram of [T; γD]."""
    T, D = randn(*shape, seed=1).float().double(), randn(*shape, seed=9).float().double()
    exact = Exact(T, D, gamma, side="right")
    ours = error(kernel_update(T, D, gamma, coefficients=coefficients, side="right"), exact.polynomial(coefficients))
    assert ours <= 1.2 * error(literal_bf16(T, D, gamma, side="right"), exact.polynomial("jordan"))


def test_an_averaged_long_side_is_that_of_the_plain_code():
    options = {"covariance": "ema", "covariance_beta": 0.9, "side": "right"}
    shapes = [(16, 64), (65, 301), (7, 90)]
    there, here = (run("Prism", options, device, shapes=shapes)[0] for device in ("cuda", "cpu"))
    for shape, actual, expected in zip(shapes, there, here, strict=True):
        assert (expected - actual.cpu()).abs().max() / 0.02 <= 0.03 * max(shape) ** 0.5, shape


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_step_is_the_eager_one_bit_for_bit(name):
    kind, options = OPTIONS[name]
    torch.testing.assert_close(replayed(kind, options, graphs=True), replayed(kind, options, graphs=False), rtol=0, atol=0)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", CAPTURED)
def test_weights_written_since_the_last_step_replace_their_masters(name, captured):
    kind, options = OPTIONS[name]
    params = [torch.nn.Parameter(randn(*shape, seed=i, dtype=torch.bfloat16)) for i, shape in enumerate(SHAPES)]
    options = options | {"master_weights": True, "weight_decay": 0, "capturable": True}
    optimizer = getattr(prism_optim, kind)(params, lr=0.02, **options)
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer.step()
    step = optimizer.step
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()
        step = graph.replay
        step()
    optimizer.param_groups[0]["lr"].fill_(0)
    masters = [optimizer.state[p]["master"].clone() for p in params]
    written = [randn(*p.shape, seed=7) > 0 for p in params]
    with torch.no_grad():
        for p, mask in zip(params, written, strict=True):
            p[mask] = 256  # a value no weight has yet: writing the one it has would leave its master as it is
    step()
    for p, mask, master in zip(params, written, masters, strict=True):
        assert (p[mask] == 256).all()
        torch.testing.assert_close(optimizer.state[p]["master"], master.masked_fill(mask, 256), rtol=0, atol=0)


def test_learning_rate_and_gamma_on_the_device_are_those_on_the_host():
    plain, _ = run("Prism", {"gamma": 0.7, "weight_decay": 0.1}, "cuda")
    device, _ = run("Prism", {"gamma": 0.7, "weight_decay": 0.1, "capturable": True}, "cuda")
    torch.testing.assert_close(device, plain, rtol=0, atol=0)


def matrix_with_gradient():
    weight = torch.nn.Parameter(torch.randn(8, 6, device="cuda"))
    weight.grad = torch.randn_like(weight)
    return weight


def test_a_learning_rate_put_into_the_group_reaches_the_graph():
    weight = matrix_with_gradient()
    optimizer = prism_optim.Prism([weight], lr=0.02, capturable=True)
    optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()  # writes it
    before = weight.detach().clone()
    graph.replay()
    assert torch.equal(weight, before)
    optimizer.load_state_dict(optimizer.state_dict() | {"param_groups": [optimizer.state_dict()["param_groups"][0] | {"lr": 0.5}]})
    graph.replay()
    assert not torch.equal(weight, before)


def test_a_step_that_a_graph_would_freeze_is_refused():
    weight = matrix_with_gradient()
    optimizer = prism_optim.Prism([weight], lr=0.02)
    optimizer.step()
    with pytest.raises(RuntimeError, match="needs capturable=True"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    optimizer = prism_optim.Prism([("w", weight)], lr=0.02, capturable=True)
    weight.grad = None
    with pytest.raises(RuntimeError, match="'w' has no gradient"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()


def test_what_the_kernels_do_not_take_cannot_be_captured():
    weight = torch.nn.Parameter(torch.randn(8, 6, device="cuda", dtype=torch.float64))
    weight.grad = torch.randn_like(weight)
    optimizer = prism_optim.Prism([weight], lr=0.02, capturable=True)
    with pytest.raises(RuntimeError, match="capturable needs contiguous float32"):
        optimizer.step()


@pytest.mark.parametrize("guard", ["found_inf", "skip_nonfinite"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_non_finite_gradient_changes_nothing(name, guard):
    kind, options = OPTIONS[name]
    weight = matrix_with_gradient()
    optimizer = getattr(prism_optim, kind)([weight], lr=0.02, skip_nonfinite=guard == "skip_nonfinite", **options)
    optimizer.step()
    before = [weight.detach().clone()] + [value.clone() for value in optimizer.state[weight].values()]
    weight.grad[3, 2] = float("inf")
    if guard == "found_inf":
        optimizer.found_inf = torch.ones(1, device="cuda")
    optimizer.step()
    torch.testing.assert_close([weight.detach(), *optimizer.state[weight].values()], before, rtol=0, atol=0)


def test_large_shapes_give_orthogonal_updates():
    """Very wide, and many experts. Along all singular values of a random matrix Jordan's set ends between 0.68 and 1.13."""
    for shape in [(8192, 28672), (256, 1024, 2048)]:
        weight = torch.nn.Parameter(torch.zeros(shape, device="cuda"))
        weight.grad = torch.randn(shape, device="cuda", generator=generator())
        prism_optim.Muon([weight], lr=1.0, scale="none").step()
        one = weight.detach().reshape(-1, *shape[-2:])[-1]
        v = torch.randn(one.shape[-2], 8, device="cuda", generator=generator(1))
        gain = (one.T @ v).norm(dim=0) / v.norm(dim=0)
        assert weight.isfinite().all() and (gain > 0.6).all() and (gain < 1.2).all(), (shape, gain)
        del weight, one
        torch.cuda.empty_cache()
