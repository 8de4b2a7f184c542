"""Spark beside the raw blocking client: the same reads, writes and work, with and without it."""
