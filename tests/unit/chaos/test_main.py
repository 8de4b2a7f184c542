"""The command line of chaos: what is left of a run."""

import pytest

from chaos import __main__ as chaos


@pytest.fixture
def play(monkeypatch, tmp_path):
    """`play(status, ...)`: a run that comes to a status, or raises it; whether history is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def play_one(comes_to, *arguments):
        def played(_, folder):
            (folder / "nemesis.jsonl").touch()
            if isinstance(comes_to, Exception):
                raise comes_to
            return comes_to

        monkeypatch.setattr(chaos, "_play", played)
        monkeypatch.setattr("sys.argv", ["chaos", *arguments])
        try:
            assert chaos.main() == comes_to
        except OSError:
            assert isinstance(comes_to, OSError)
        return [*tmp_path.rglob("nemesis.jsonl")]

    return play_one


@pytest.mark.parametrize("comes_to", [1, OSError("the program broke")], ids=["breach", "error"])
def test_the_history_of_a_run_that_went_wrong_is_left_and_it_says_where(play, comes_to, capsys):
    [left] = play(comes_to)
    assert capsys.readouterr().err == f"the history is in {left.parent}\n"


def test_the_history_of_a_run_that_went_well_is_not(play, capsys):
    assert play(0) == []
    assert capsys.readouterr().err == ""


def test_one_that_is_asked_for_is_left_anyway(play, tmp_path):
    kept = tmp_path / "here" / "and-there"
    assert play(0, "--keep", str(kept)) == [kept / "nemesis.jsonl"]
