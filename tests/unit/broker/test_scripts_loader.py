"""`scripts.py`: a script's header is its signature, checked when it is loaded and when called."""

import hashlib
import re
from pathlib import Path

import pytest
from hiredis import ReplyError

from chasquimq.broker import scripts
from chasquimq.broker.scripts import Script, parse_script
from chasquimq.errors import ServerReplyError
from chasquimq.wire.event import EventName

BROKER = Path(scripts.__file__).parent
FILES = sorted((BROKER / "lua").glob("*.lua"))
LOADED = {each.name: each for each in vars(scripts).values() if isinstance(each, Script)}

HEADER = re.compile(r"^-- ([A-Z]{4,})\s+(.*)$")
TOLD = re.compile(r"(?:'e',\s*|\btell\()'([a-z-]+)'")

EXAMPLE = """\
-- Do something.
-- KEYS    first second
-- ARGV    limit jobs...
-- RETURN  1
return redis.call('GET', first)
"""


def a_script(keys="first second", arguments="limit size"):
    return parse_script("example", f"-- KEYS {keys}\n-- ARGV {arguments}\nreturn 1\n")


# --- the header


def test_the_names_of_the_header_become_locals_on_the_same_lines():
    script = parse_script("example", EXAMPLE)

    assert script.source.splitlines() == [
        "-- Do something.",
        "local first, second = KEYS[1], KEYS[2]",
        "local limit, jobs_from = ARGV[1], 2",
        "-- RETURN  1",
        "return redis.call('GET', first)",
    ]
    assert script.keys == ("first", "second")
    assert script.arguments == ("limit", "jobs...")


def test_a_script_goes_by_the_digest_of_what_is_sent():
    script = parse_script("example", EXAMPLE)

    assert script.sha.decode() == hashlib.sha1(script.source.encode()).hexdigest()  # noqa: S324
    assert script.source.encode() in script.load_request()


def test_keys_may_be_any_number_too():
    script = a_script(keys="stream markers...", arguments="ttl_s")

    assert script.source.startswith("local stream, markers_from = KEYS[1], 2\n")


@pytest.mark.parametrize("header", ["-- Nothing to see.", "-- KEYS", "-- KEYS   "])
def test_a_script_without_keys_has_none(header):
    script = parse_script("example", f"{header}\nreturn 1\n")

    assert (script.keys, script.arguments) == ((), ())
    assert script.source.splitlines()[1] == "return 1"
    assert script.source.startswith("--")


@pytest.mark.parametrize(
    "name", ["Stream", "1st", "a-b", "a.b", "jobs..", "...", "jobs... last", "größe", "_hidden"]
)
@pytest.mark.parametrize("kind", ["KEYS", "ARGV"])
def test_a_bad_name_is_refused_when_the_script_is_loaded(kind, name):
    with pytest.raises(
        ValueError, match=rf"script example: '{re.escape(name.split()[0])}'.*{kind}"
    ):
        parse_script("example", f"-- {kind}  good {name}\n")


# --- the call


def test_values_are_sent_in_the_order_of_the_header_and_not_of_the_caller():
    request = a_script().request({"second": "k2", "first": b"k1"}, {"size": 7, "limit": "é"})

    sha = a_script().sha
    assert request == (
        b"*7\r\n$7\r\nEVALSHA\r\n$40\r\n" + sha + b"\r\n$1\r\n2\r\n$2\r\nk1\r\n$2\r\nk2\r\n"
        b"$2\r\n\xc3\xa9\r\n$1\r\n7\r\n"
    )


def test_what_comes_in_any_number_follows_what_has_a_name():
    script = a_script(keys="stream more...", arguments="limit jobs...")
    request = script.request(
        {"stream": b"s"}, {"limit": 1}, more_keys=[b"m1", b"m2"], more_arguments=[b"", b"\r\n"]
    )

    assert request == (
        b"*9\r\n$7\r\nEVALSHA\r\n$40\r\n" + script.sha + b"\r\n$1\r\n3\r\n$1\r\ns\r\n$2\r\nm1\r\n"
        b"$2\r\nm2\r\n$1\r\n1\r\n$0\r\n\r\n$2\r\n\r\n\r\n"
    )


def test_any_number_may_be_none():
    script = a_script(keys="stream more...", arguments="limit jobs...")

    assert script.request({"stream": b"s"}, {"limit": 1}).startswith(b"*5\r\n")


GOOD_KEYS = {"first": b"a", "second": b"b"}
GOOD_ARGUMENTS = {"limit": 1, "size": 2}


@pytest.mark.parametrize(
    ("keys", "arguments", "told"),
    [
        ({"first": b"a"}, GOOD_ARGUMENTS, "takes KEYS first, second; got first"),
        ({**GOOD_KEYS, "third": b"c"}, GOOD_ARGUMENTS, "got first, second, third"),
        (GOOD_KEYS, {"limit": 1}, "takes ARGV limit, size; got limit"),
        (GOOD_KEYS, {"limit": 1, "sise": 2}, "got limit, sise"),
        (GOOD_KEYS, {}, "takes ARGV limit, size"),
    ],
)
def test_a_missing_or_unknown_name_is_a_mistake_of_the_caller(keys, arguments, told):
    with pytest.raises(TypeError, match=f"script example .*{told}"):
        a_script().request(keys, arguments)


@pytest.mark.parametrize("more", [{"more_keys": [b"k"]}, {"more_arguments": [b"a"]}])
def test_values_without_a_name_are_refused_where_the_header_has_no_place_for_them(more):
    with pytest.raises(TypeError, match="script example takes"):
        a_script().request(GOOD_KEYS, GOOD_ARGUMENTS, **more)


def test_what_stands_for_any_number_cannot_be_passed_by_name():
    script = a_script(arguments="limit jobs...")

    with pytest.raises(TypeError, match=re.escape("takes ARGV limit, jobs...")):
        script.request(GOOD_KEYS, {"limit": 1, "jobs...": b"x"})


def test_a_call_knows_its_script_reads_its_reply_and_is_not_repeatable_unless_told():
    script = a_script()
    call = script.call(GOOD_KEYS, GOOD_ARGUMENTS, read=lambda reply: reply + 1)

    assert call.requests == (script.request(GOOD_KEYS, GOOD_ARGUMENTS),)
    assert call.scripts == (script,)
    assert call.repeatable is False
    assert call.parse([41]) == 42
    with pytest.raises(ServerReplyError):
        call.parse([ReplyError("OOM no memory")])


def test_a_call_may_be_repeatable():
    call = a_script().call(GOOD_KEYS, GOOD_ARGUMENTS, read=int, repeatable=True)

    assert call.repeatable is True


# --- the scripts we ship


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def text(path):
    return path.read_text("utf-8")


@pytest.fixture
def header(text):
    """What the lines at the top say, by their word in capitals."""
    comments = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        comments.append(line)
    return {found[1]: found[2] for line in comments if (found := HEADER.match(line))}


def test_every_file_is_loaded_under_its_name_and_nothing_else_is():
    assert {path.stem for path in FILES} == set(LOADED)
    for name, script in LOADED.items():
        assert getattr(scripts, name.upper()) is script


def test_the_header_says_what_it_is_for_and_what_goes_in_and_out(text, header):
    assert re.match(r"-- [A-Z]\w+.*", text)
    assert [word for word in header if word != "EVENTS"] == ["KEYS", "ARGV", "RETURN"]


def test_the_binding_leaves_every_other_line_as_it_is_in_the_file(path, text):
    lines, sent = text.splitlines(), LOADED[path.stem].source.splitlines()

    assert len(lines) == len(sent)
    changed = [line for line, other in zip(lines, sent, strict=True) if line != other]
    assert [line[:7] for line in changed] == ["-- KEYS", "-- ARGV"]


def test_every_name_of_the_header_is_one_thing_and_is_used(path, text):
    script = LOADED[path.stem]
    names = [name.replace("...", "_from") for name in (*script.keys, *script.arguments)]
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))

    assert len(set(names)) == len(names)
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_the_events_of_the_header_are_those_that_are_told_and_they_exist(path, text, header):
    """Or the argument that holds them, of a script that is given events."""
    told, named = set(TOLD.findall(text)), set(header.get("EVENTS", "").split())

    assert named - set(LOADED[path.stem].arguments) == told
    assert told <= set(EventName)
    assert ("EVENTS" in header) == bool(re.search(r"^-- KEYS .*\bevents\b", text, re.MULTILINE))


def test_keys_come_from_the_caller_and_are_never_made_up(text):
    """A key that is not in KEYS breaks on a cluster; so every command starts with a name."""
    first_arguments = re.findall(r"redis\.p?call\('[A-Z]+',\s*(?:'[A-Z]+',\s*)?([^,)]+)", text)

    assert "chasqui" not in text
    assert [each for each in first_arguments if each.startswith(("'", '"'))] == []


def test_every_script_has_one_caller(path):
    sources = [other.read_text("utf-8") for other in BROKER.glob("*.py")]
    # To give a server the script is not to call it.
    use = rf"scripts\.{path.stem.upper()}\.(?!load_request)"
    uses = sum(len(re.findall(use, source)) for source in sources)

    assert uses == 1
