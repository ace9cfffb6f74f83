"""The mark `gpu` (skipped without a GPU, run by `make test-gpu`), the list of the slowest tests, and a torchvision that can be imported."""

import collections
import importlib.util
import itertools
import pathlib
import re

import pytest

SLOWEST = 10


def pytest_addoption(parser):
    parser.addoption("--ctest-log", type=pathlib.Path, help="log of a CTest run whose tests count among the slowest")


def times_of_ctest(log):
    """Yields (seconds, name) of each GoogleTest in CTest's LastTest.log, and of each CTest entry without GoogleTests."""
    for entry in re.split(r"^\d+/\d+ Testing: ", log.read_text(errors="replace"), flags=re.MULTILINE)[1:]:
        suite = entry.partition("\n")[0]
        tests = re.findall(r"^\[ +(?:OK|FAILED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$", entry, re.MULTILINE)
        elapsed = re.search(r"^Test time = +([\d.]+) sec$", entry, re.MULTILINE)
        if tests:
            yield from ((int(ms) / 1000, f"test_{suite} {name}") for name, ms in tests)
        elif elapsed:
            yield float(elapsed[1]), f"ctest {suite}"


def pytest_terminal_summary(terminalreporter, config):
    """Prints the slowest tests above pytest's own summary lines."""
    seconds = collections.Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    log = config.getoption("--ctest-log")
    if log and log.exists():
        seconds.update({name: time for time, name in times_of_ctest(log)})
    terminalreporter.section(f"{SLOWEST} slowest tests")
    for name, time in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{time:7.1f} s  {name}")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


def declare_torchvision_operators():
    """Declares torchvision's operators, so that it can be imported if its library does not load (a CUDA wheel beside a CPU torch). No test uses them."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if importlib.util.find_spec("torchvision") is not None:  # timm and torchmetrics import it
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        declared = declare_torchvision_operators()
