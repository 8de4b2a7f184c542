"""The scripts on real servers: each compiles, goes by our digest, and errs on the file's line."""

import pytest

from chasquimq.broker import scripts
from chasquimq.broker.scripts import Script, parse_script
from chasquimq.errors import ServerReplyError

SHIPPED = [each for each in vars(scripts).values() if isinstance(each, Script)]

FAULTY = """\
-- Fail on the sixth line.
-- KEYS    stream
-- ARGV    group jobs...
-- RETURN  never
local count = #ARGV - jobs_from
return count + nothing
"""


@pytest.mark.parametrize("script", SHIPPED, ids=lambda script: script.name)
def test_the_server_compiles_the_script_and_knows_it_by_our_digest(server, script):
    assert server.client().script_load(script.source).encode() == script.sha


def test_a_fault_in_a_script_is_reported_on_the_line_of_its_file(run, raw, keys):
    script = parse_script("faulty", FAULTY)

    with pytest.raises(ServerReplyError, match=r"user_script:6\b"):
        run(script.call({"stream": keys.stream}, {"group": "g"}, read=int))


def test_a_refusal_inside_a_script_is_reported_on_the_line_of_its_file(run, raw, keys):
    """Line 5 of `claim.lua` is where it first asks for the group."""
    lines = scripts.CLAIM.source.splitlines()
    assert "XPENDING" in lines[4]
    call = scripts.CLAIM.call(
        {"stream": keys.stream},
        {"group": "g", "consumer": "c", "min_idle_ms": 0, "count": 1},
        read=list,
    )

    with pytest.raises(ServerReplyError, match=r"^redis: NOGROUP .*user_script:5\b"):
        run(call)


def test_scripts_that_the_server_has_lost_are_given_to_it_again(run, raw, keys):
    call = scripts.LEAD.call(
        {"lock": keys.promoter_lock}, {"holder": "h", "ttl_s": 5}, read=bool, repeatable=False
    )
    assert run(call) is True
    raw.client.script_flush()

    assert run(call) is True


def test_without_memory_scripts_can_still_be_given_to_the_server(run, raw, keys, without_memory):
    raw.client.script_flush()
    call = scripts.RELEASE.call({"lock": keys.promoter_lock}, {"holder": "h"}, read=bool)

    with without_memory():
        assert run(call) is False
