"""`scripts/audit.py`: a known vulnerability is told, one that was withdrawn is not."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit.py"
spec = importlib.util.spec_from_file_location("audit", SCRIPT)
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)


def test_a_known_vulnerability_is_told_with_its_remedy():
    told = {
        "vulnerabilities": [
            {"id": "GHSA-1", "fixed_in": ["1.2"], "withdrawn": None},
            {"id": "GHSA-2", "fixed_in": [], "withdrawn": None},
            {"id": "GHSA-3", "fixed_in": [], "withdrawn": "2024-01-01T00:00:00Z"},
        ]
    }
    assert audit.problems("left-pad", "1.0", told) == [
        "left-pad 1.0: GHSA-1 (fixed in 1.2)",
        "left-pad 1.0: GHSA-2 (fixed in nothing yet)",
    ]


def test_without_an_answer_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(audit, "_URL", "https://127.0.0.1:1/{name}/{version}")
    assert audit._ask("left-pad", "1.0", float("inf")) is None  # noqa: SLF001
