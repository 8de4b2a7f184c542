"""The token bucket of one worker, on a clock that the test moves."""

from chasquimq.engine.bucket import Bucket


def test_it_begins_full_and_gives_whole_tokens_only():
    bucket = Bucket(3, 1_000, now_us=0)
    assert bucket.whole(0) == 3
    bucket.spend(3)
    assert (bucket.whole(0), bucket.whole(333_000), bucket.whole(334_000)) == (0, 0, 1)


def test_it_refills_evenly_and_never_holds_more_than_its_size():
    bucket = Bucket(10, 1_000, now_us=0)
    bucket.spend(10)
    assert bucket.whole(500_000) == 5
    assert bucket.whole(90_000_000) == 10


def test_it_says_how_long_until_the_next_token_never_less_than_a_millisecond():
    bucket = Bucket(2, 1_000, now_us=0)
    assert bucket.wait_ms(0) == 0
    bucket.spend(2)
    assert bucket.wait_ms(0) == 500
    assert bucket.wait_ms(499_900) == 1
    assert bucket.wait_ms(500_100) == 0


def test_after_the_time_it_says_there_is_a_token():
    bucket = Bucket(7, 1_000, now_us=0)
    bucket.spend(7)
    assert bucket.whole(bucket.wait_ms(0) * 1_000) == 1


def test_a_clock_that_stands_still_or_steps_back_refills_nothing():
    bucket = Bucket(1, 1_000, now_us=5_000)
    bucket.spend(1)
    assert bucket.whole(4_000) == 0
