"""What all operations stand on: the two queues, who works on them, and how one is picked."""

from tests.model.hand import Hand
from tests.model.plain import Model
from tests.model.stage import CONSUMERS, Stage
from tests.model.world import World
from tests.support.guards import sweep_keys


class Ground:
    """A real queue and its model, both empty."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        sweep_keys(stage.client, stage.keys.name)
        stage.rewind()
        self.stage = stage
        self.queue = stage.queue
        self.world = World(stage.client, stage.keys)
        self.model = Model()
        self.serial = 0
        connection, keys, clock = stage.connection, stage.keys, stage.clock
        self.hands = {name: Hand(connection, keys, name, clock) for name in CONSUMERS}
        # What each consumer believes to have, as the model knows it.
        self.in_hand = {name: {} for name in CONSUMERS}

    def _pick(self, pick, places):
        """The id of one of these jobs; now and then of any there ever was, gone or elsewhere."""
        ids = [each.job.id for each in places if each.job.id]
        if pick % 10 == 0 or not ids:
            ids = self.model.known or ["nobody"]
            pick //= 10
        return ids[pick % len(ids)]

    def _busy(self, consumer):
        """This one if it has something in hand, else the one that has."""
        return consumer if self.in_hand[consumer] else next(filter(self.in_hand.get, CONSUMERS))

    def _next_serial(self):
        self.serial += 1
        return self.serial
