"""`Triage` where nothing needs Spark: exported files, and a replay that is killed midway."""

import json
import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.parquet
import pytest

from chasquimq.errors import ConfigError
from chasquimq.pipeline import Triage
from chasquimq.pipeline.export import writer_for
from chasquimq.wire.codec import unpack
from chasquimq.wire.envelope import decode
from chasquimq.wire.keys import QueueKeys
from tests.support.story import some

LETTERS = 2_500
# Says when it begins a thousand, and waits to be told to go on.
PROGRAM = """
    import sys
    from chasquimq.pipeline import Triage

    class Watched(list):
        def __getitem__(self, index):
            print("next", flush=True)
            sys.stdin.readline()
            return super().__getitem__(index)

    Triage(sys.argv[1], redis_url=sys.argv[2]).{verb}(Watched(sys.argv[3].split()))
"""


@pytest.mark.servers("valkey")
@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_killed_midway_the_same_again_does_the_rest_and_nothing_twice(
    server, queue_name, queue, play, verb
):
    play(some("broken", LETTERS))
    ids = [letter["dlq_id"] for letter in queue.peek_dlq(LETTERS)]
    assert len(ids) == LETTERS
    program = textwrap.dedent(PROGRAM.format(verb=verb))
    with subprocess.Popen(
        [sys.executable, "-c", program, queue_name, server.url, " ".join(ids)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as killed:  # fmt: skip
        for _ in range(2):
            assert killed.stdout.readline() == "next\n"
            killed.stdin.write("\n")
            killed.stdin.flush()
        # The second thousand may be under way; it is done or not, no letter is done by half.
        killed.kill()
    left = queue.counts().dead
    assert left in {LETTERS - 1_000, LETTERS - 2_000}

    verdict = getattr(Triage(queue_name, redis_url=server.url), verb)(ids)
    assert (verdict.found, verdict.changed) == (LETTERS, left)
    assert queue.counts().dead == 0
    entries = server.client().xrange(QueueKeys(queue_name).stream)
    replayed = sorted(unpack(decode(fields[b"d"]).payload) for _, fields in entries)
    assert replayed == (list(range(LETTERS)) if verb == "replay" else [])


TABLE = pa.table({"dlq_id": ["1-0", "2-0"], "name": ["a", None], "raw": [None, b"\xc1"]})


def test_an_export_is_whole_and_leaves_no_other_file(tmp_path):
    for name in ("out.parquet", "out.csv", "out.json"):
        writer_for(str(tmp_path / name))(TABLE)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet") == TABLE
    assert (tmp_path / "out.csv").read_text() == (
        '"dlq_id","name","raw"\n"1-0","a",\n"2-0",,"wQ=="\n'
    )
    lines = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    first, second = TABLE.to_pylist()
    assert lines == [first, second | {"raw": "wQ=="}]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.csv",
        "out.json",
        "out.parquet",
    ]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("out.xlsx", "is 'out.xlsx': let it end in .parquet, .csv, .json, .jsonl"),
        ("old.csv", "'old.csv', is already there: name another, or remove it"),
        ("nowhere/out.csv", "'nowhere/out.csv', and there is no such folder: make it first"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path, monkeypatch, path, problem
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.csv").write_text("what was discarded")
    with pytest.raises(ConfigError, match=problem):
        Triage("q").export(path)
