"""Errors of an update and of the literal bfloat16 iteration against the same polynomial in float64, on the device of the inputs."""

import prism_optim
import torch

BETA = 0.95

# Coefficients of x, x³, … of each step, then p of the norm (Σσᵖ)^(1/p) that divides the stack, and a further divisor.
SETS = {
    "jordan": ([(3.4445, -4.7750, 2.0315)] * 5, 2, 1.0),
    "minimax9": (
        [
            (14.80094337, -144.4595382, 480.2615616, -617.0305152, 268.3831496),
            (6.410621007, -15.35472243, 13.09394023, -4.358054242, 0.4929334429),
            (3.629521295, -7.028789121, 6.474278279, -2.538754037, 0.3511528997),
        ],
        4,
        1.05,
    ),
}


def update_of(G, M, gamma, *, nesterov, **options):
    """Returns what a step of Prism at lr 1 subtracts from the weights, given the gradient and the momentum before the step."""
    weight = torch.nn.Parameter(torch.zeros(G.shape, device=G.device))
    optimizer = prism_optim.Prism([weight], lr=1.0, gamma=gamma, momentum=BETA, nesterov=nesterov, scale="none", **options)
    optimizer.state[weight]["momentum"].copy_(M)
    weight.grad = G.float()
    optimizer.step()
    return -weight.detach().double()


def signal_of(G, M):
    """T and D of a step with Nesterov's momentum, in float64."""
    G, M = G.double(), M.double()
    M = BETA * M + (1 - BETA) * G
    return (1 - BETA) * G + BETA * M, G - M


def stacked(T, D, gamma, side="auto"):
    """Returns [T; γD] with the shorter side along the columns; for side "right" of a wide matrix, n > 2m, its transpose."""
    if side == "right" and T.shape[1] > 2 * T.shape[0]:
        return torch.cat([T, gamma * D]).T
    return torch.cat([T, gamma * D]) if T.shape[0] >= T.shape[1] else torch.cat([T.T, gamma * D.T])


def unstacked(S, like, side="auto"):
    """Returns T's part of a function of the stack."""
    if side == "right" and like.shape[1] > 2 * like.shape[0]:
        return S.T[: like.shape[0]]
    top = S[: max(like.shape)]
    return top if like.shape[0] >= like.shape[1] else top.T


class Exact:
    """Functions of the singular values of [T; γD] in float64, T's part of the result."""

    def __init__(self, T, D, gamma, side="auto"):
        self.T, self.side = T, side
        S = stacked(T, D, gamma, side)
        Q, R = torch.linalg.qr(S / S.norm())
        U, self.sigma, self.Vh = torch.linalg.svd(R)
        self.U = Q @ U

    def polynomial(self, coefficients):
        polynomials, p, bound = SETS[coefficients]
        sigma = self.sigma / (bound * self.sigma.pow(p).sum().pow(1 / p))
        for c in polynomials:
            sigma = sigma * sum(a * sigma ** (2 * i) for i, a in enumerate(c))
        return self._with(sigma)

    def factor(self):
        """Returns the polar factor; zero singular values stay zero."""
        return self._with((self.sigma > 1e-13).double())

    def _with(self, sigma):
        return unstacked((self.U * sigma) @ self.Vh, self.T, self.side)


def literal_bf16(T, D, gamma, side="auto"):
    """Jordan's iteration on the stack with everything in bfloat16, as Muon is usually run."""
    X = stacked(T, D, gamma, side).bfloat16()
    X = X / X.norm()
    for a, b, c in SETS["jordan"][0]:
        A = X.T @ X
        X = a * X + X @ (b * A + c * A @ A)
    return unstacked(X, T, side).double()


def error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()
