"""Histories: what is written is what is read, also if its writer was killed in the middle."""

from chaos.history import (
    Added,
    Asked,
    Quiet,
    Scroll,
    from_line,
    read_all,
    to_line,
)

AT_REST = Quiet(is_drained=True)


def test_a_record_comes_back_as_it_was(tmp_path):
    records = [
        Asked(1, 2, "p/1", "quick", 3),
        Added(4, "p/1", "j"),
        Quiet(is_drained=True, leftovers=("a", "b")),
    ]
    assert [from_line(to_line(record)) for record in records] == records


def test_files_are_read_in_the_order_of_the_clock_and_the_aftermath_last(tmp_path):
    for name, records in {
        "a": [AT_REST, Added(9, "p/1", "j")],
        "b": [Added(3, "p/2", "k")],
    }.items():
        scroll = Scroll(tmp_path / f"{name}.jsonl")
        for record in records:
            scroll.write(record)
        scroll.close()
    assert read_all(tmp_path) == [Added(3, "p/2", "k"), Added(9, "p/1", "j"), AT_REST]


def test_a_line_that_was_torn_by_a_kill_is_left_out(tmp_path):
    whole = to_line(Added(3, "p/2", "k"))
    (tmp_path / "a.jsonl").write_text(f"{whole}\n{whole[:20]}")
    assert read_all(tmp_path) == [Added(3, "p/2", "k")]


def test_a_process_that_is_started_again_appends_to_its_file(tmp_path):
    for us in (1, 2):
        scroll = Scroll(tmp_path / "a.jsonl")
        scroll.write(Added(us, "p/2", "k"))
        scroll.close()
    assert [record.us for record in read_all(tmp_path)] == [1, 2]
