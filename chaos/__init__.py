"""A program that tries to break the promises of the queue, and proves whether it could.

`python -m chaos --minutes 5 --seed 7`. Producers, workers and leaders run as processes of their own
against real servers, a seeded nemesis does to them what the world does, and every one of them
writes down what it did (`history`). When it is quiet again, `checker` looks at that and at what is
left on the server (`aftermath`), and says which promise was broken, if any was.

The seed decides what the producers ask for and what the nemesis does, in which order, to whom and
for how long. It cannot decide how the machine interleaves them: a seed repeats a run's weather, not
its every step.
"""
