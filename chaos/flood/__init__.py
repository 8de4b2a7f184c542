"""A million delayed jobs that are due in one second, and new jobs that want to get through.

`python -m chaos.flood`. Workers run as processes of their own; when the flood is due, new jobs go
on being added one by one. It tells, for every tenth of the flood, how fast it drained and how long
the new jobs took from their add to their handler.
"""
