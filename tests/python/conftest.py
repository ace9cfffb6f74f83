"""The mark `gpu`: tests that are passed over where there is none, and that `make test-gpu` runs."""

import pytest


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
