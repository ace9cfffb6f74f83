"""prism_optim against torch's optimizers, against the C++ optimizers, and the memory a step takes."""

import json

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, set_gradients, train, values
from program import BUILD

SHAPES = [(48, 32), (32, 48), (48, 48)]


def weights(shapes=SHAPES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes]


def muon_reference(params, lr, weight_decay, momentum=0.95):
    """The formula of torch.optim.Muon with match_rms_adamw, in float64 and without its rounding to bfloat16."""
    buffers = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step():
        for p, M in zip(params, buffers, strict=True):
            G = p.grad
            M.lerp_(G, 1 - momentum)
            X = G.lerp(M, momentum)
            X = X.T if p.size(0) > p.size(1) else X
            X = X / X.norm()
            for _ in range(5):
                A = X @ X.T
                X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
            X = X.T if p.size(0) > p.size(1) else X
            p.mul_(1 - lr * weight_decay).sub_(X, alpha=lr * 0.2 * max(p.shape) ** 0.5)

    return step


def run_muons(steps, gradient):
    """Ours, torch's and the reference, each fed gradient(params, step); the distance of the first two from the third."""
    lr, weight_decay = 0.02, 0.1
    ours, theirs, exact = weights(), weights(), weights(dtype=torch.float64)
    with torch.no_grad():
        for p, q in zip(exact, ours, strict=True):
            p.copy_(q)
    stepping = [
        (ours, prism_optim.Prism(ours, lr=lr, gamma=0, weight_decay=weight_decay).step),
        (theirs, torch.optim.Muon(theirs, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw").step),
        (exact, muon_reference(exact, lr, weight_decay)),
    ]
    for step in range(steps):
        for params, take in stepping:
            gradient(params, step)
            take()

    def distance(params):
        return sum((p.double() - q).norm().item() ** 2 for p, q in zip(params, exact, strict=True)) ** 0.5

    return distance(ours), distance(theirs)


def test_prism_without_damping_is_torch_s_muon_within_twice_its_rounding():
    def fixed(params, step):
        generator = torch.Generator().manual_seed(step)
        for p in params:
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.grad = (noise + 0.3 * torch.ones_like(noise)).to(p.dtype)

    ours, theirs = run_muons(200, fixed)
    assert theirs > 0
    assert ours <= 2 * theirs


def test_prism_without_damping_stays_with_torch_s_muon_in_closed_loop():
    generator = torch.Generator().manual_seed(9)
    targets = [torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES]

    def quadratic(params, step):
        for p, target in zip(params, targets, strict=True):
            p.grad = p.detach() - target.to(p.dtype)

    ours, theirs = run_muons(10, quadratic)
    assert ours <= 2 * theirs


@pytest.mark.parametrize(
    ("name", "torch_name", "options"),
    [
        ("AdamW", "AdamW", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
        ("AdamW", "AdamW", {"lr": 0.01, "amsgrad": True}),
        ("Adam", "Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("AdaGrad", "Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1}),
        ("RMSprop", "RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ],
)
def test_elementwise_methods_are_torch_s(name, torch_name, options):
    case = next(c for c in CASES if c.name == name)
    ours, theirs = parameters(case), parameters(case)
    first = getattr(prism_optim, name)(ours, **options)
    second = getattr(torch.optim, torch_name)([p for _, p in theirs], **options)
    train(first, ours, 50)
    train(second, theirs, 50)
    torch.testing.assert_close(values(ours), values(theirs), rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="session")
def cpp_train():
    library = BUILD / "tests/python/libprism_cpp_optimizer.so"
    assert library.exists(), f"{library} is missing: build the tests first (make test), or set PRISM_BUILD_DIR"
    torch.ops.load_library(library)

    def run(named, steps, name, options):
        gradients = []
        for step in range(steps):
            set_gradients(named, 100 + step)
            gradients += [p.grad for _, p in named]
        return torch.ops.prism_test.train(values(named), [n for n, _ in named], gradients, name, json.dumps(options))

    return run


@every_class
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_python_and_cpp_give_the_same_bits(case, dtype, cpp_train):
    named = parameters(case, dtype=dtype)
    options = {"lr": case.lr, "weight_decay": 0.1, **case.options}
    expected = cpp_train(named, 5, case.cls.kind, options)
    train(case.make(named, weight_decay=0.1), named, 5)
    assert_same(values(named), list(expected))


def test_mixed_gives_the_same_bits_as_in_cpp(cpp_train):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 8))
    # C++ knows names, not modules, and calls the embedding by its name.
    named = [(name.replace("0.weight", "embed.weight"), p) for name, p in model.named_parameters()]
    options = {"prism": {"lr": 0.02, "gamma": 2.0}, "adamw": {"lr": 0.005, "betas": [0.9, 0.95]}}
    expected = cpp_train(named, 5, "mixed", options)
    train(prism_optim.Mixed(model, lr=0.02, gamma=2.0, aux_lr=0.005, aux_betas=(0.9, 0.95)), named, 5)
    assert_same(values(named), list(expected))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def peak_extra_bytes(optimizer):
    """The most that was allocated at once during a step, beyond what there was before it."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        optimizer.step()
    now = peak = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


# In square matrices, for each thread: docs/from-adamw.md says so.
@pytest.mark.parametrize(("name", "workspaces"), [("Prism", 11), ("Muon", 10), ("AdamW", 0.01)])
def test_a_step_needs_the_workspace_of_its_largest_matrix(name, workspaces, one_thread):
    def peak(sizes):
        params = [torch.nn.Parameter(torch.randn(size, size)) for size in sizes for _ in range(2)]
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer = getattr(prism_optim, name)(params)
        optimizer.step()
        return peak_extra_bytes(optimizer)

    assert peak([512]) <= workspaces * 4 * 512 * 512
    assert peak([512, 480, 400]) <= peak([512]) * 1.02 + 4096  # the memory of one matrix serves the next
