"""Registries of claims: what is shipped, and what is refused."""

from pathlib import Path

import pytest

from jagg.claims import ESTIMANDS
from jagg.claims.registry import load_claims
from jagg.errors import InputError

REGISTRIES = sorted((Path(__file__).parents[2] / "configs" / "claims").glob("*.yaml"))

GOOD = """
source: somewhere
claims:
  - id: A
    statement: It holds.
    tests: [{estimand: difference, arm: jagg, relation: superior}]
"""


def load(tmp_path: Path, text: str) -> list:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    return load_claims([path])


def test_every_claim_of_both_papers_and_the_review_is_shipped() -> None:
    claims = load_claims(REGISTRIES)
    families = {claim.id.split("-")[0] for _, claim in claims}
    assert families >= {*(f"C{n}" for n in range(1, 11)), *(f"R{n}" for n in range(1, 9)), "L1", "L2", "L3"}
    assert {test.estimand for _, claim in claims for test in (*claim.tests, *claim.counterpart)} <= set(ESTIMANDS)
    assert {number.n for _, claim in claims for number in claim.published} == {None, 1, 3}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("relation: superior", "relation: superior, allpha: 0.1", "allpha"),
        ("relation: superior", "relation: better", "relation"),
        ("estimand: difference", "estimand: diference", "estimand"),
        ("arm: jagg", "arm: baseline", "reference"),
        ("statement: It holds.", "statment: It holds.", "statement"),
        ("arm: jagg, relation: superior", "arm: jagg, relation: equivalent, margin: -1", "margin"),
        ("{estimand: difference, arm: jagg, relation: superior}",
         "{estimand: passes, arm: jagg, quantity: reduction}", "low"),
        ("{estimand: difference, arm: jagg, relation: superior}",
         "{estimand: time, arm: jagg, stage: step, low: 2, high: 1}", "low"),
    ],
)  # fmt: skip
def test_faults_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=named):
        load(tmp_path, GOOD.replace(old, new))


def test_an_id_that_stands_twice_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    assert [claim.id for _, claim in load(tmp_path, GOOD)] == ["A"]
    path = tmp_path / "claims.yaml"
    with pytest.raises(InputError, match="A"):
        load_claims([path, path])
    with pytest.raises(InputError, match=r"absent\.yaml"):
        load_claims([tmp_path / "absent.yaml"])
    with pytest.raises(InputError, match="no claims"):
        load_claims([])
