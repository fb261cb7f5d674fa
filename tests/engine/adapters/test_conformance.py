"""Every operator of every adapter that is available here computes what the reference computes."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)

from engine.adapters.catalogue import BY_NAME, OPERATORS, Mode  # noqa: E402
from engine.adapters.dispatcher import choose  # noqa: E402
from engine.adapters.vendors import VENDORS  # noqa: E402
from tests.engine.adapters.cases import Case, cases  # noqa: E402

CASES = list(cases())
AVAILABLE = [name for name, vendor in VENDORS.items() if vendor.availability().ok]
TABLES = [choose(VENDORS[name], mode) for name in AVAILABLE for mode in Mode]


def test_every_operator_has_cases() -> None:
    assert {case.operator for case in CASES} == {operator.name for operator in OPERATORS}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.vendor}-{table.mode}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_adapters_operator_agrees_with_the_reference(table: Any, case: Case) -> None:
    choice = table[case.operator]
    if choice.target is None:
        pytest.skip(f"{case.operator} of {table.vendor} is inside LMDeploy's backend; token equality covers it")
    operator = BY_NAME[case.operator]
    expected_inputs, inputs = case.arguments(), case.arguments()
    kept = copy.deepcopy(inputs)
    expected = _outputs(operator, table_reference(case.operator)(*expected_inputs), expected_inputs)
    got = _outputs(operator, choice.load()(*inputs), inputs)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        allowed = operator.tolerance[str(case.dtype).removeprefix("torch.")] * max(1e-6, float(theirs.abs().max()))
        assert float((ours.double() - theirs.double()).abs().max()) <= allowed
    _unchanged(operator, kept, inputs)


def table_reference(name: str) -> Any:
    module, _, function = BY_NAME[name].reference.partition(":")
    return getattr(__import__(module, fromlist=[function]), function)


def _outputs(operator: Any, returned: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """What it returned, or what it wrote where it returns nothing."""
    if returned is None:
        return [each for each in inputs if isinstance(each, torch.Tensor)]
    return list(returned) if isinstance(returned, tuple) else [returned]


def _unchanged(operator: Any, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """An operator that declares no mutation has left its arguments alone."""
    if operator.mutates:
        return
    for old, new in zip(before, after, strict=True):
        if isinstance(old, torch.Tensor):
            assert torch.equal(old, new)
