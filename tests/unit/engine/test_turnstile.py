from chasquimq.broker.line import Line
from chasquimq.engine.turnstile import Turnstile
from chasquimq.wire.ids import StreamId


def a_line(waiting, read_up_to=0):
    return Line(waiting, StreamId(read_up_to, 0))


def let_in(turnstile, count, last):
    turnstile.entered(count, StreamId(last, 0))


def test_an_empty_line_has_room_for_a_batch():
    assert Turnstile(10).room(a_line(0)) == 10


def test_without_readers_there_is_always_room():
    turnstile = Turnstile(10)
    for number in range(100):
        let_in(turnstile, 10, number)
    assert turnstile.room(None) == 10


def test_four_batches_wait_at_most_where_nobody_else_does():
    turnstile = Turnstile(10)
    for number in range(1, 5):
        assert turnstile.room(a_line(waiting=10 * (number - 1))) == 10
        let_in(turnstile, 10, number)
    assert turnstile.room(a_line(waiting=40)) == 0


def test_a_batch_that_has_been_read_makes_room_for_another():
    turnstile = Turnstile(10)
    for number in range(1, 5):
        let_in(turnstile, 10, number)
    assert turnstile.room(a_line(waiting=35, read_up_to=0)) == 0
    assert turnstile.room(a_line(waiting=30, read_up_to=1)) == 10


def test_due_jobs_may_be_half_of_a_long_line():
    turnstile = Turnstile(10)
    rooms = []
    for number in range(1, 101):
        rooms.append(turnstile.room(a_line(waiting=500 + sum(rooms))))
        if rooms[-1]:
            let_in(turnstile, rooms[-1], number)
    assert sum(rooms) == 500


def test_a_line_of_others_alone_never_keeps_due_jobs_out():
    assert Turnstile(10).room(a_line(waiting=1_000_000)) == 10


def test_what_was_let_in_before_it_was_cleared_does_not_count():
    turnstile = Turnstile(10)
    for number in range(1, 5):
        let_in(turnstile, 10, number)
    turnstile.clear()
    assert turnstile.room(a_line(waiting=0)) == 10


def test_what_was_drained_unread_keeps_nobody_out():
    turnstile = Turnstile(10)
    for number in range(1, 5):
        let_in(turnstile, 10, number)
    assert turnstile.room(a_line(waiting=0)) == 10
