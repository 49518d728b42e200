"""A cache of values with known sizes: the least recently used go first. Threads may share it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """At most so many bytes of values; a value that is larger than that is not kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        with self._lock:
            before = self._entries.pop(key, None)
            self.bytes -= before[1] if before is not None else 0
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self.bytes += size
            while self.bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self.bytes -= freed

    def __len__(self) -> int:
        return len(self._entries)
