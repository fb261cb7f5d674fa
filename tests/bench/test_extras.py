from __future__ import annotations

import pytest

from bench.extras import require


def test_what_is_there_passes_and_what_is_missing_is_named_with_its_cure() -> None:
    require("json")
    with pytest.raises(ModuleNotFoundError, match=r"no_such_module.*requirements/bench\.txt"):
        require("json", "no_such_module")
