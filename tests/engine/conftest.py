import pytest

from tests.support.scene import Scene
from tests.support.sink import RecordingSink


@pytest.fixture
async def scene(server, queue_name):
    """A queue of this test's own, on each server."""
    scene = Scene(server, queue_name)
    yield scene
    await scene.queue.close()


@pytest.fixture
async def sink():
    return RecordingSink()
