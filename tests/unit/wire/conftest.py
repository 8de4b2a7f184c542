"""Properties are checked without a deadline: a shared machine may pause for longer than any."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
