"""Measures our speed as ratios: the rivals of a comparison take turns in one run, on one server."""
