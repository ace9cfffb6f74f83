"""The CUDA kernels on gradients of a real training run, early, in the middle and late."""

import pytest
from optim_accuracy import SETS
from recorded_gradients import GAMMAS, Setting, accuracy, train

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def run():
    records, losses = train("cuda")
    assert len({(r.matrix, r.moment) for r in records}) == len(records) == 2 * 7 * 3  # all matrices of two layers, three times
    return records, losses


@pytest.fixture(scope="module")
def accuracies(run):
    records, _ = run
    return [accuracy(record, gamma) for gamma in GAMMAS for record in records]


def test_the_model_learns(run):
    _, losses = run
    early, middle, late = (losses[moment] for moment in Setting.moments)
    assert late < middle < early and late < 4, losses  # ln 8192 = 9.0 at the start


def test_no_update_has_a_number_that_is_not_finite(accuracies):
    assert [(a.matrix, a.moment, a.gamma) for a in accuracies if not a.finite] == []


@pytest.mark.parametrize("coefficients", SETS)
def test_the_update_is_closer_to_float64_than_the_literal_iteration_in_bfloat16(accuracies, coefficients):
    far = [f"{a.matrix}, step {a.moment}, γ {a.gamma}: ours {a.ours[coefficients]:.2e}, literal {a.literal:.2e}"
           for a in accuracies if not a.ours[coefficients] <= 1.2 * a.literal]  # fmt: skip
    assert not far, "\n".join(far)


def mean_square(distances):
    return sum(d * d for d in distances) / len(distances)


def test_minimax9_is_no_further_from_the_exact_factor_than_jordans_set(accuracies):
    """On average, at all but the first moment and over all of them; an early gradient is mostly singular values that neither set reaches."""
    distances = {c: [a.our_distance[c] for a in accuracies] for c in SETS}
    assert sum(distances["minimax9"]) < sum(distances["jordan"])
    assert mean_square(distances["minimax9"]) < mean_square(distances["jordan"])
    for moment in Setting.moments[1:]:
        late = {c: [a.our_distance[c] for a in accuracies if a.moment == moment] for c in SETS}
        assert sum(late["minimax9"]) < 0.9 * sum(late["jordan"]), moment
        assert mean_square(late["minimax9"]) < mean_square(late["jordan"]), moment


def test_minimax9_is_nearer_to_the_exact_factor_than_jordans_set_where_no_singular_value_is_below_its_interval(accuracies):
    inside = [a for a in accuracies if a.smallest >= 3e-3 * 1.05]
    assert len(inside) >= 12
    assert all(a.our_distance["minimax9"] <= 0.13 < a.our_distance["jordan"] for a in inside)
