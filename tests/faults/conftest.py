import pytest

from tests.support.scene import Scene
from tests.support.worker_process import worker_processes


@pytest.fixture
async def scene(server, queue_name):
    """A queue of this test's own, on each server."""
    scene = Scene(server, queue_name)
    yield scene
    await scene.queue.close()


@pytest.fixture
async def start_worker():
    """Start a worker in a process of its own: `await start_worker(scene, **options)`."""
    async with worker_processes() as start:
        yield start
