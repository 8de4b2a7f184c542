"""A long run at a steady rate, that says whether anything grows which should not.

`python -m chaos.soak --minutes 60`. Producers and workers run as processes of their own, and their
connections are cut, one process after the other, for as long as it lasts. What each process and the
server hold is read again and again (`readings`); at the end `verdict` says of every series whether
it is flat, and `ledger` whether every job that was acknowledged came to its end.
"""
