"""Batches on the device, fetched while it works on the one before."""

import queue
import threading

import numpy as np
import torch
from torch import Tensor

from recipes.nano.data import RowFeed, Rows

AHEAD = 4
"""Batches that wait on the device."""


class DeviceBatches:
    """Batches of a feed, on a device.

    Args:
        feed: of rows.
        rows: in a batch.
        device: where they go.
    """

    def __init__(self, feed: RowFeed, rows: int, device: torch.device) -> None:
        self._feed = feed
        self._rows = rows
        self._device = device
        self._ready: queue.Queue[Tensor | Exception] = queue.Queue(AHEAD)
        threading.Thread(target=self._fetch, daemon=True).start()

    def _fetch(self) -> None:
        while True:
            try:
                self._ready.put(self.on_device(self._feed.take(self._rows)))
            except Exception as error:  # raised where the batch is taken
                self._ready.put(error)
                return

    def on_device(self, rows: Rows) -> Tensor:
        """Rows as int16 [rows, 3, length] on the device."""
        host = torch.from_numpy(rows.astype(np.int16))
        if self._device.type != "cuda":
            return host
        # A copy from ordinary memory would make the whole process wait.
        return host.pin_memory().to(self._device, non_blocking=True)

    def take(self) -> Tensor:
        """The next batch, int16 [rows, 3, length].

        Raises:
            RuntimeError: a data worker has died.
        """
        batch = self._ready.get()
        if isinstance(batch, Exception):
            raise batch
        return batch
