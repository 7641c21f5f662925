"""From a store's directory to a store that can be served: what must be made anew or repaired before that."""

import asyncio

from rmq.broker.damaged import Damaged
from rmq.broker.front import Front
from rmq.broker.rebuilding import Rebuilding
from rmq.clock import Clock
from rmq.config import NodeSettings
from rmq.log.disk import Disk
from rmq.log.settings import StoreSettings
from rmq.log.store import Store


async def open_store(disk: Disk, told: StoreSettings, settings: NodeSettings, front: Front, clock: Clock) -> Store:
    """Queues made anew; of a member of a group what was damaged repaired. One that stands alone may still be damaged.

    Raises StoreError, OSError; then it is closed.
    """
    while True:
        store = await asyncio.to_thread(Store.open, disk, str(settings.store_dir), told)
        try:
            if store.rebuild_to:
                await Rebuilding(store, settings, front, clock).run()
            if not store.read_only or told.alone:
                return store
            await Damaged(store, disk, settings, front, clock).run()
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        await asyncio.to_thread(store.close)
