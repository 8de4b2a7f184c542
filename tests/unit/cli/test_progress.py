"""Progress: one line that is rewritten on a terminal, a line now and then elsewhere."""

import io
import sys

import pytest

from chasquimq.cli.progress import ProgressLine, line
from chasquimq.pipeline import Progress


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            Progress(12_000, 50_000, 3_400),
            "12,000 of 50,000 rows (24 %), 3,400 a second, 11 s left",
        ),
        (Progress(0, 50_000, 0), "0 of 50,000 rows (0 %)"),
        (Progress(0, 0, 0), "0 of 0 rows (100 %)"),
    ],
)
def test_a_line_has_rows_rate_and_what_is_left(progress, text):
    assert line(progress) == text
    assert line(progress, "dead letters") == text.replace("rows", "dead letters")


def test_on_a_terminal_a_shorter_line_covers_the_one_before(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    shown = ProgressLine()
    shown.tell(Progress(10, 20, 5))
    shown.tell(Progress(10, 20, 0))
    shown.end()
    first, second = screen.getvalue().split("\r")[1:]
    assert first == "chasqui: 10 of 20 rows (50 %), 5 a second, 2 s left"
    assert second == "chasqui: 10 of 20 rows (50 %)".ljust(len(first)) + "\n"


def test_elsewhere_lines_are_whole_and_few(capsys):
    shown = ProgressLine(every_s=3_600)
    for done in range(5):
        shown.tell(Progress(done, 20, 0))
    shown.end()
    assert capsys.readouterr().err == "chasqui: 0 of 20 rows (0 %)\n"
    often = ProgressLine(every_s=0)
    for done in range(2):
        often.tell(Progress(done, 20, 0))
    assert len(capsys.readouterr().err.splitlines()) == 2
