"""The rules that `python -m tests.sim.mutants` takes out are still where it looks for them; running it takes hours."""

import pytest

from tests.sim.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}: {mutant.what}")
def test_the_line_of_each_mutant_is_there_once(mutant: Mutant) -> None:
    """G1."""
    assert (ROOT / mutant.path).read_text(encoding="utf-8").count(mutant.old) == 1
