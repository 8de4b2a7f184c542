"""The parts of `examples/demo.py`: what is played, what is counted, and what is shown."""
