"""What the workers of a comparison run: nothing, so that all that is seen is ours."""


async def nothing(job: object) -> None:
    """Take a job and do nothing with it."""


def nothing_at_all(batch: object) -> None:
    """Take a whole batch of jobs and do nothing with it."""
