"""`Chasqui`: jobs find their task by name, and data become arguments; what cannot is told."""

import asyncio
import functools
import threading
from datetime import timedelta

import pytest

from chasquimq import Chasqui, Job, JobState, NotSupportedError, RepeatPattern, RetryConfig
from chasquimq.testing import run_until_idle

pytestmark = pytest.mark.servers("valkey")  # the app is above the queue: servers do not matter
NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def app(server, queue_name):
    async with Chasqui(queue_name, redis_url=server.url) as app:
        yield app


@pytest.fixture
def work(app):
    """Run a worker of the app until nothing is left to do."""
    quickly = RetryConfig(initial_backoff_ms=1, jitter_ms=0)

    async def work(queue=None, **options):
        usual = {"retry": quickly, "handle_signals": False, "store_results": True}
        await run_until_idle(app.worker(queue, **usual | options), app.queue(queue))

    return work


async def the_letter(app, queue=None):
    [letter] = await app.queue(queue).peek_dlq()
    return letter


# --- from a call to a run


async def test_a_job_is_given_to_the_task_of_its_name_whether_async_or_plain(app, work):
    @app.task
    async def double(number):
        return number * 2, threading.current_thread() is threading.main_thread()

    @app.task
    def triple(number):
        return number * 3, threading.current_thread() is threading.main_thread()

    jobs = [await double.add(4), await triple.add(4)]
    await work()
    results = await app.queue().get_job_result_bulk([job.id for job in jobs])
    assert results == [[8, True], [12, False]]


async def test_a_task_can_still_be_called_and_says_what_it_is(app):
    @app.task
    def add(a: int, b: int = 1) -> int:
        """Sum."""
        return a + b

    assert (add(2), add(2, b=3)) == (3, 5)
    assert (add.__name__, add.__doc__) == ("add", "Sum.")
    assert repr(add).startswith("<Task 'add' ")
    assert app.tasks == {"add": add}
    assert repr(app) == f"<Chasqui {app.default_queue}, 1 tasks>"


async def test_arguments_by_position_and_by_name_arrive_and_defaults_are_the_workers_own(app, work):
    @app.task
    async def send(to, subject="none", **headers):
        return [to, subject, headers]

    jobs = [await send.add("ada"), await send.add("ada", subject="hi", priority=1)]
    assert [job.data for job in jobs] == [
        {"to": "ada"},
        {"to": "ada", "subject": "hi", "priority": 1},
    ]
    await work()
    assert await app.queue().get_job_result_bulk([job.id for job in jobs]) == [
        ["ada", "none", {}],
        ["ada", "hi", {"priority": 1}],
    ]


def test_options_of_other_bindings_are_refused_and_mistakes_are_told(app):
    @app.task
    async def send(to):
        return to

    with pytest.raises(NotSupportedError, match=r"'priority'.*first in, first out"):
        send.options(priority=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dealy'"):
        send.options(dealy=1)


async def test_a_parameter_called_data_is_given_whatever_the_data_are(app, work):
    @app.task
    async def count(data):
        return len(data)

    jobs = [await count.add([1, 2, 3]), await app.queue().add("count", "four")]
    await work()
    assert await app.queue().get_job_result_bulk([job.id for job in jobs]) == [3, 4]


async def test_a_first_parameter_annotated_job_is_the_job(app, work):
    @app.task
    async def who(job: Job, greeting):
        return [greeting, job.id, job.attempt]

    @app.task
    def looks_by_itself(job: "Job"):
        return job.data

    @app.task
    def as_a_handler(job):
        return job.name

    first = await who.add("hello")
    second = await app.queue().add("looks_by_itself", [1, 2])
    third = await as_a_handler.add()
    assert first.data == {"greeting": "hello"}
    await work()
    assert await app.queue().get_job_result(first.id) == ["hello", first.id, 1]
    assert await app.queue().get_job_result(third.id) == "as_a_handler"
    assert await app.queue().get_job_result(second.id) == [1, 2]


async def test_a_task_without_parameters_runs_for_a_job_without_data(app, work):
    @app.task("tidy-up")
    async def tidy_up():
        return "tidy"

    jobs = [await tidy_up.add(), await app.queue().add("tidy-up", None)]
    await work()
    assert await app.queue().get_job_result_bulk([job.id for job in jobs]) == ["tidy", "tidy"]


async def test_a_job_is_added_without_asyncio_too(app, work):
    @app.task
    async def echo(data):
        return data

    job = await asyncio.to_thread(echo.add_sync, {"a": 1})
    later = await asyncio.to_thread(echo.options(delay_ms=60_000).add_sync, 1)
    await work()
    assert await app.queue().get_job_result(job.id) == {"a": 1}
    assert await app.queue().get_job_state(later.id) is JobState.DELAYED


async def test_the_options_of_a_call_win_over_those_of_the_task(app, work):
    runs = []

    @app.task(attempts=2, backoff=1)
    async def fail(how):
        runs.append(how)
        raise ValueError(how)

    await fail.add("as the task says")
    await fail.options(attempts=3).add("as the call says")
    await work()
    assert sorted(runs) == ["as the call says"] * 3 + ["as the task says"] * 2


async def test_what_a_task_says_of_retries_holds_for_jobs_added_by_name_too(app, work):
    runs = []

    @app.task(attempts=2, backoff=1)
    async def fail(how):
        runs.append(how)
        raise ValueError(how)

    await app.queue().add("fail", {"how": "as the task says"})
    await app.queue().add("fail", {"how": "as the job says"}, attempts=3)
    await work()
    assert sorted(runs) == ["as the job says"] * 3 + ["as the task says"] * 2


async def test_every_option_of_add_can_be_given_for_a_call(app):
    @app.task
    async def remind(data): ...

    delayed = await remind.options(delay=timedelta(hours=1), job_id="mine").add(1)
    again = await remind.options(job_id="mine").add(2)
    recurring = await remind.options(repeat=RepeatPattern.every(60_000)).add(3)
    assert (delayed.id, again.deduplicated) == ("mine", True)
    assert await app.queue().get_job_state("mine") is JobState.DELAYED
    assert [each.key for each in await app.queue().get_repeatable_jobs()] == [recurring.id]


async def test_a_task_with_a_queue_of_its_own_is_added_there_and_run_by_a_worker_there(app, work):
    other = f"{app.default_queue}-other"

    @app.task
    async def here(): ...

    @app.task(queue=other)
    async def there():
        return "there"

    assert app.queue_names == [app.default_queue, other]
    await here.add()
    job = await there.add()
    assert (await app.queue().counts()).waiting == (await app.queue(other).counts()).waiting == 1
    await work(other)
    assert await app.queue(other).get_job_result(job.id) == "there"
    assert (await app.queue().counts()).waiting == 1


# --- what cannot be run


async def test_a_job_of_an_unknown_name_is_dead_lettered_at_once_with_the_names_there_are(
    app, work, caplog
):
    @app.task
    async def welcome(): ...

    @app.task
    async def goodbye(): ...

    await app.queue().add("welcom", {})
    await work()
    letter = await the_letter(app)
    assert (letter["reason"], letter["attempts"]) == ("unrecoverable", 1)
    assert letter["error"] == (
        "UnknownTaskError: no task is named 'welcom'; this app has goodbye, welcome: correct the "
        "name where the job is added, or deploy the task, then replay [CMQ-013]"
    )
    assert letter["traceback"] is None
    [told] = [line for line in caplog.messages if "failed for good" in line]
    assert told.endswith(letter["error"])


async def test_only_so_many_names_are_told(app, work):
    for number in range(25):
        app.task(f"task-{number:02}")(lambda: None)
    await app.queue().add("other", None)
    await work()
    assert "task-19 and 5 more: " in (await the_letter(app))["error"]


@pytest.mark.parametrize("is_plain", [True, False])
async def test_with_a_fallback_jobs_of_unknown_names_run_too(app, work, is_plain):
    def plain(job):
        return ["fallback", job.name, job.data]

    async def coroutine(job):
        return plain(job)

    app.fallback(plain if is_plain else coroutine)
    job = await app.queue().add("whatever", 5)
    await work()
    assert await app.queue().get_job_result(job.id) == ["fallback", "whatever", 5]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "lack 'to'"),
        ({"to": 1, "too": 2, "two": 3}, "have an unknown 'too', 'two'"),
        ({"too": 1}, "lack 'to' and have an unknown 'too'"),
        (None, "lack 'to'"),
        ([1], "must be an object; got list"),
        ({1: 2}, "must be an object; got dict"),
    ],
)
async def test_data_that_do_not_fit_are_dead_lettered_at_once_and_it_is_said_why(
    app, work, data, told
):
    @app.task
    async def send(to, subject="none"): ...

    await app.queue().add("send", data)
    await work()
    letter = await the_letter(app)
    assert (letter["reason"], letter["attempts"]) == ("unrecoverable", 1)
    assert told in letter["error"]
    assert "(to, subject='none')" in letter["error"]
    assert letter["error"].endswith("[CMQ-014]")


async def test_a_type_error_of_the_task_itself_is_a_failure_like_any_other(app, work):
    runs = []

    @app.task(attempts=2)
    async def send(to):
        runs.append(to)
        return len(to)

    await send.add(5)
    await work()
    letter = await the_letter(app)
    assert (letter["reason"], runs) == ("retries_exhausted", [5, 5])
    assert "return len(to)" in letter["traceback"]


async def test_wrong_arguments_are_a_type_error_of_who_adds_and_nothing_is_sent(app):
    @app.task
    async def send(job: Job, to, subject="none"): ...

    for arguments in ((), ("ada", "hi", "more")):
        with pytest.raises(TypeError, match="argument"):
            await send.add(*arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'too'"):
        await send.add("ada", too="ada")
    assert (await app.queue().counts()).waiting == 0


async def test_a_run_that_takes_longer_than_its_timeout_fails_and_is_retried(app, work):
    runs = []

    @app.task(timeout=timedelta(milliseconds=20), attempts=2)
    async def hang(job: Job):
        runs.append(job.attempt)
        await asyncio.Event().wait()

    await hang.add()
    await work()
    letter = await the_letter(app)
    assert runs == [1, 2]
    assert letter["error"] == "TimeoutError: task 'hang' was stopped: it ran for more than 0.02 s"


async def test_a_timeout_of_the_tasks_own_is_told_as_it_is(app, work):
    @app.task(timeout=30, attempts=1)
    async def ask():
        message = "the gateway did not answer"
        raise TimeoutError(message)

    await ask.add()
    await work()
    assert (await the_letter(app))["error"] == "TimeoutError: the gateway did not answer"


# --- mistakes in the program


def test_two_tasks_of_one_name_are_refused():
    app = Chasqui()
    app.task("send")(lambda: None)
    with pytest.raises(ValueError, match=r"'send' is taken by <Task 'send' .*: give one"):
        app.task("send")(lambda: None)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda *args: None, "'\\*args' cannot be named"),
        (lambda a, /: None, "cannot be named"),
        (dict, "a task is a function"),
        (5, "a task is a function"),
    ],
)
def test_what_cannot_be_called_by_name_cannot_be_a_task(function, told):
    with pytest.raises(TypeError, match=told):
        Chasqui().task("name")(function)


def test_the_job_must_come_first():
    def late(to, job: Job): ...

    with pytest.raises(TypeError, match=r"must be the first parameter of .*late: move it"):
        Chasqui().task(late)


def test_a_timeout_that_cannot_be_kept_is_refused():
    with pytest.raises(TypeError, match="a thread cannot be interrupted"):
        Chasqui().task(timeout=5)(lambda: None)

    async def task(): ...

    for timeout in (0, -1, True, "5", float("nan")):
        with pytest.raises(ValueError, match="timeout must be seconds above 0"):
            Chasqui().task(timeout=timeout)(task)


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"attempts": 0}, ValueError, "attempts must be 1 or more"),
        ({"backoff": "soon"}, TypeError, "backoff must be milliseconds"),
        ({"queue": "{}"}, ValueError, "brace"),
        ({"name": ""}, ValueError, "is empty"),
    ],
)
def test_wrong_options_of_a_task_are_told_when_it_is_made(options, kind, told):
    with pytest.raises(kind, match=told):
        Chasqui().task(**options)(lambda: None)


def test_a_wrong_fallback_is_refused_and_so_is_a_second():
    app = Chasqui()
    with pytest.raises(TypeError, match="one argument, the Job"):
        app.fallback(lambda: None)
    app.fallback(lambda job: None)
    with pytest.raises(ValueError, match="an app has one"):
        app.fallback(lambda job: None)


@pytest.mark.parametrize("queue", ["", "a{b"])
def test_a_wrong_queue_or_url_is_told_when_the_app_is_made(queue):
    with pytest.raises(ValueError, match="queue name"):
        Chasqui(queue)
    with pytest.raises(ValueError, match="scheme"):
        Chasqui(redis_url="http://127.0.0.1")


def test_an_unknown_option_of_a_worker_is_refused():
    with pytest.raises(TypeError, match="concurency"):
        Chasqui(redis_url=NOWHERE).worker(concurency=5)


# --- lifespan


async def test_a_lifespan_is_entered_before_the_first_job_and_left_after_the_last(app, work):
    story = []

    def telling(name):
        async def span():
            story.append(f"enter {name}")
            async with asyncio.TaskGroup():  # needs to be left by the task that entered it
                yield
            story.append(f"leave {name}")

        return span

    app.lifespan(telling("pool"))
    app.lifespan(telling("cache"))

    @app.task
    async def use():
        story.append("run")

    await use.add()
    await work()
    whole = ["enter pool", "enter cache", "run", "leave cache", "leave pool"]
    assert story == whole
    await use.add()
    await work()
    assert story == whole * 2


async def test_workers_of_one_process_share_the_lifespan(app):
    story = []

    @app.lifespan
    async def span():
        story.append("enter")
        yield
        story.append("leave")

    done = asyncio.Event()

    @app.task
    async def use():
        done.set()

    workers = [app.worker(handle_signals=False) for _ in range(2)]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(worker.run()) for worker in workers]
        await use.add()
        await done.wait()
        await workers[0].close()
        await running[0]
        assert story == ["enter"]
        await workers[1].close()
    assert story == ["enter", "leave"]


async def test_what_a_lifespan_raises_at_the_start_ends_every_worker_and_no_job_is_read(app):
    story = []

    @app.lifespan
    async def outer():
        story.append("enter outer")
        yield
        story.append("leave outer")

    @app.lifespan
    async def inner():
        message = "no database"
        raise ConnectionError(message)
        yield

    @app.task
    async def use(): ...

    await use.add()
    workers = [app.worker(handle_signals=False) for _ in range(2)]
    errors = await asyncio.gather(*(each.run() for each in workers), return_exceptions=True)
    assert [repr(error) for error in errors] == ["ConnectionError('no database')"] * 2
    assert story == ["enter outer"]
    assert (await app.queue().counts()).waiting == 1


async def test_what_a_lifespan_raises_at_the_end_is_raised_by_run(app):
    @app.lifespan
    async def span():
        yield
        message = "cannot flush"
        raise OSError(message)

    worker = app.worker(handle_signals=False)
    await worker.close()
    with pytest.raises(OSError, match="cannot flush"):
        await worker.run()


class Counter:
    async def __call__(self, number):
        return number + 1


async def scaled(factor, number):
    return factor * number


@pytest.mark.parametrize(
    ("function", "result"),
    [(functools.partial(scaled, 10), 40), (Counter(), 5)],
    ids=["partial", "object"],
)
async def test_what_is_called_like_a_function_can_be_a_task_under_a_name(
    app, work, function, result
):
    with pytest.raises(TypeError, match=r"has no name of its own: use @app.task\(\"name\"\)"):
        app.task(function)
    job = await app.task("unnamed")(function).add(number=4)
    await work()
    assert await app.queue().get_job_result(job.id) == result
