"""What runs inside a measured process: one scenario of one rival, told as one line of JSON.

A program knows nothing of rounds, tables or other rivals. It is started with an order, as `python
-m bench.program`, in the environment of the rival it measures: two rivals with one import name
never meet. Nothing in here may import `chasquimq`, except the adapter that is about it.
"""
