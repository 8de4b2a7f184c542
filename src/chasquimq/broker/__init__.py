"""Every Redis command and script we send. No loops, no tasks, no policy."""
