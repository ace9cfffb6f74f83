"""docs/compatibility.md: each row is backed by tests that exist, and says "not yet" exactly where its tests are marked so."""

import ast
import functools
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "compatibility.md"
VERDICTS = ("works", "note", "refused", "not yet")
ROWS = [re.split(r"\s*\|\s*", line)[1:-1] for line in PAGE.read_text().splitlines() if "::test_" in line]


def marked(test):
    """Returns True if a test is expected to fail: marked xfail, directly or through `later` or LATER."""
    return any(re.search(r"\b(later|xfail|LATER)\b", ast.unparse(decorator)) for decorator in test.decorator_list)


@functools.cache
def functions_of(file):
    return {node.name: node for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_its_tests_and_tells_what_they_show(row):
    convention, verdict, _, tests = row
    assert convention and verdict in VERDICTS
    named = re.findall(r"`((?:clients/)?test_\w+\.py)::(test_\w+)`", tests)
    assert named and len(named) == tests.count("::")
    for file, name in named:
        assert (TESTS / file).exists(), file
        assert name in functions_of(file), f"{file}::{name}"
        assert marked(functions_of(file)[name]) == (verdict == "not yet"), f"{file}::{name} and '{verdict}' do not agree"


def test_every_test_that_is_expected_to_fail_has_its_row():
    page = PAGE.read_text()
    for path in [*TESTS.glob("test_optim_*.py"), *TESTS.glob("clients/test_*.py")]:
        file = str(path.relative_to(TESTS))
        for name, test in functions_of(file).items():
            assert not (name.startswith("test_") and marked(test)) or f"{file}::{name}" in page, f"{file}::{name}"
