"""`scripts/audit.py`: a known vulnerability is told, one that was withdrawn is not."""

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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


@pytest.fixture
def pages(monkeypatch):
    """What an index on this machine answers, by path; others are not found."""
    told = {}

    class Index(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = told.get(self.path)
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode() if answer else b"")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(audit, "_INDEX", f"http://127.0.0.1:{server.server_port}")
        yield told
        server.shutdown()


def page(version):
    return {
        "info": {"version": version},
        "vulnerabilities": [{"id": f"GHSA-of-{version}", "fixed_in": [], "withdrawn": None}],
    }


def test_a_release_is_looked_up_by_its_own_page(pages):
    pages |= {"/left-pad/1.0/json": page("1.0"), "/left-pad/json": page("2.0")}
    assert ask("1.0") == ["left-pad 1.0: GHSA-of-1.0 (fixed in nothing yet)"]


def test_a_mirror_without_pages_of_releases_is_believed_about_the_newest_alone(pages):
    pages |= {"/left-pad/json": page("2.0")}
    assert ask("2.0") == ["left-pad 2.0: GHSA-of-2.0 (fixed in nothing yet)"]
    assert ask("1.0") is None


def test_without_an_answer_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(audit, "_INDEX", "https://127.0.0.1:1")
    assert ask("1.0") is None


def ask(version):
    return audit._ask("left-pad", version, float("inf"))  # noqa: SLF001
