"""Another process with one of the two packages in it, for tests in which both work on one queue."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgpack  # type: ignore[import-untyped]

DRIVER = Path(__file__).parents[1] / "interop" / "driver.py"
PATIENCE_SECS = 15.0
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Package:
    """A `chasquimq` that can be run: whose it is, with which Python, and how it counts runs."""

    name: str
    python: str
    first_attempt: int


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """One run of a handler, as the process it ran in reported it; `number` counts from 1."""

    by: str
    id: str
    name: str
    data: Any
    number: int
    created_at_ms: int
    at_ms: int
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One event, as `QueueEvents` of a party gave it."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]


class Party:
    """A process that produces, works and watches with one of the packages.

    It reports what its handlers and its events do; waiting is for such reports, never for time.
    """

    def __init__(self, package: Package, redis_url: str) -> None:
        """Start the process; it connects when it is given something to do."""
        self.name = package.name
        self._command = [package.python, str(DRIVER), redis_url, str(package.first_attempt)]
        self._news = threading.Condition()
        # Written by the listening thread, read by the test; both hold `_news`.
        self._started: list[HandlerRun] = []
        self._ended: list[HandlerRun] = []
        self._events: list[SeenEvent] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._has_ended = False
        self._asked = 0
        self._launch()

    def __repr__(self) -> str:
        """Show whose it is, and what it has done."""
        return f"<Party {self.name}, {len(self.started)} runs started, {len(self.ended)} ended>"

    @property
    def started(self) -> list[HandlerRun]:
        """Every run that has begun, in order."""
        with self._news:
            return list(self._started)

    @property
    def ended(self) -> list[HandlerRun]:
        """Every run whose handler is over, in order, with its outcome."""
        with self._news:
            return list(self._ended)

    @property
    def events(self) -> list[SeenEvent]:
        """Every event that was seen since `watch`."""
        with self._news:
            return list(self._events)

    def order(self, order: str, **arguments: Any) -> int:
        """Give an order of the driver; do not wait. Returns what to pass to `answer`."""
        self._asked += 1
        message = {"number": self._asked, "order": order, "arguments": arguments}
        stdin = _given(self._process.stdin)
        stdin.write(json.dumps(message) + "\n")
        stdin.flush()
        return self._asked

    def answer(self, number: int) -> Any:
        """What came of an order; `AssertionError` if it went wrong."""
        self.until(lambda: number in self._answers or self._has_ended)
        answer = self._answers.pop(number, {"error": "the process has ended"})
        if "error" in answer:
            message = f"{self.name}: {answer['error']}"
            raise AssertionError(message)
        return answer["value"]

    def ask(self, order: str, **arguments: Any) -> Any:
        """Order, and wait for the answer."""
        return self.answer(self.order(order, **arguments))

    def add(self, queue: str, name: str, data: Any, **options: Any) -> str:
        """Add a job; its id. `at_ms` stands for a `delay_ms` that is a datetime."""
        return str(self.ask("add", queue=queue, job=job(name, data, **options))["id"])

    def add_bulk(self, queue: str, jobs: list[dict[str, Any]]) -> list[str]:
        """Add many; their ids."""
        ids: list[str] = self.ask("add_bulk", queue=queue, jobs=jobs)
        return ids

    def work(self, queue: str, *, plan: dict[str, Any] | None = None, **options: Any) -> None:
        """Start a worker with these options of `Worker`; `plan` says what its handler does.

        By a job's name: `failures` is how many of its first runs fail, `hopeless` ones raise
        `UnrecoverableError`, `returns` is what the others return (packed), `held` ones do not go on
        before the order `release`; `is_held` holds all.
        """
        self.ask("work", queue=queue, plan=plan or {}, options=options)

    def watch(self, queue: str) -> None:
        """Begin to report all events of a queue, those of the past too."""
        self.ask("watch", queue=queue)

    def dead_letters(self, queue: str) -> list[dict[str, Any]]:
        """The dead letters, payloads as bytes."""
        letters = self.ask("peek", queue=queue)
        return [letter | {"payload": bytes.fromhex(letter["payload"])} for letter in letters]

    def results(self, queue: str, *job_ids: str) -> list[Any]:
        """The stored results of jobs, None where there is none."""
        return [unpacked(value) for value in self.ask("results", queue=queue, job_ids=job_ids)]

    def until(self, fact: Callable[[], object], timeout: float = PATIENCE_SECS) -> None:
        """Wait until `fact`, about this party's reports, is true; looks when there is news."""
        with self._news:
            if not self._news.wait_for(fact, timeout):
                last = [*self._ended[-_SHOWN:], *self._events[-_SHOWN:]]
                message = f"still not so after {timeout} s; the last of {self!r} were {last}"
                raise AssertionError(message)

    def has_run(self, *job_ids: str) -> list[HandlerRun]:
        """Wait until a run of each job has ended well, and return all that ended, in order."""
        wanted = set(job_ids)
        self.until(lambda: wanted <= {run.id for run in self._ended if run.outcome == "ok"})
        return self.ended

    def has_seen(self, name: str, *job_ids: str | None) -> list[SeenEvent]:
        """Wait until this event of each job was seen, and return all of that name, in order.

        The events of the whole queue are those of job None.
        """
        wanted = set(job_ids)
        self.until(lambda: wanted <= {each.job_id for each in self._events if each.name == name})
        return [each for each in self.events if each.name == name]

    def reset(self) -> None:
        """Stop its workers, end its watching, forget what it reported."""
        self.ask("reset")
        with self._news:
            for reports in (self._started, self._ended, self._events):
                reports.clear()

    def restart(self) -> None:
        """End the process and start another, so that nothing stays connected; reports are kept.

        A worker of the reference engine that has stopped leaves a read blocked for the rest of its
        `read_block_ms`; jobs that are added meanwhile go to nobody until their lease runs out.
        """
        self.close()
        self._launch()

    def kill(self) -> None:
        """End the process as a crash would, and start another; reports are kept."""
        self._process.kill()
        self.restart()

    def close(self) -> None:
        """Let the process end as programs do; kill it if that takes too long."""
        _given(self._process.stdin).close()
        try:
            self._process.wait(PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listening.join()
        _given(self._process.stdout).close()

    def _launch(self) -> None:
        self._has_ended = False
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # What leads to our package must not lead the reference engine's Python there.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        for line in _given(self._process.stdout):
            message = json.loads(line)
            with self._news:
                self._take(message)
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"answers": number}:
                self._answers[number] = message
            case {"started": run}:
                self._started.append(self._run(run))
            case {"ended": run}:
                self._ended.append(self._run(run))
            case {"event": event}:
                self._events.append(SeenEvent(**event))

    def _run(self, report: dict[str, Any]) -> HandlerRun:
        return HandlerRun(**(report | {"by": self.name, "data": unpacked(report["data"])}))


def job(name: str, data: Any, **options: Any) -> dict[str, Any]:
    """A job as the driver takes it."""
    return {"name": name, "data": packed(data), **options}


def packed(value: Any) -> str:
    """A value on its way to the driver."""
    return str(msgpack.packb(value).hex())


def unpacked(text: str) -> Any:
    """A value that came from the driver."""
    return msgpack.unpackb(bytes.fromhex(text), strict_map_key=False)


def _given(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
