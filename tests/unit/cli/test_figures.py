"""What `chasqui pipeline report` prints."""

import pytest

pytest.importorskip("pyspark", reason="the report needs the extra spark")

from chasquimq.cli.figures import show_figures, spark_line
from tests.support.figures import a_full_summary, a_summary


@pytest.fixture
def printed(monkeypatch, capsys):
    """`printed(summary, columns)`: its lines on a screen so wide."""

    def show(summary, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        show_figures(summary)
        return capsys.readouterr().out.splitlines()

    return show


def test_each_name_has_its_figures(printed):
    lines = printed(a_summary(), 160)
    [row] = [line for line in lines if "ship" in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["q / <b>ship</b>", "50", "8", "1 ms / 5 ms / 9 ms", "2 ms / 7 ms / -", "25.0%",
                     "1.20", "5", "20"]  # fmt: skip


def test_all_together_are_on_top(printed):
    lines = printed(a_summary(), 160)
    assert "2026-01-31 09:00 to 2026-01-31 09:05 UTC" in lines[0]
    told = "\n".join(lines)
    assert "50 arrived, 40 completed, 5 dead" in told
    assert "8 completed per min" in told
    assert "█████" in told
    assert "80.0% within 1 min, target 99.0%, burn 20" in told


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_nothing_is_wider_than_the_screen_and_what_is_left_out_is_said(printed, columns):
    lines = printed(a_full_summary(), columns)
    assert max(map(len, lines)) <= columns
    assert "and 19 more names" in lines
    assert any("events are missing in 4 gaps" in line for line in lines)
    # A name that is too long is cut, not folded over many lines.
    assert len(lines) < 40


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([0, 0], "  "), ([1, 0, 8], "▁ █"), ([5], "█"), ([1, 1, 1, 1, 2, 2], "▄▄█")],
)
def test_values_as_a_line_of_blocks(values, line):
    assert spark_line(values, most=3) == line
