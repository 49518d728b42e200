"""Spark for a run that may not need it: opened when something first asks for it, and set up for what it is to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from errata.engine.session import configured
from errata.flows.site import Site


class LateSession:
    """A session that is opened once, by whichever thread first needs it."""

    def __init__(self, site: Site, on_opening: Callable[[], None] = lambda: None) -> None:
        self._site, self._on_opening = site, on_opening
        self._lock = threading.Lock()
        self._opened: SparkSession | None = None
        self._conf: Mapping[str, str] = {}
        self._for_a_while: ExitStack | None = None
        self.engines = site.engines_with(self.open)
        """What chooses between the near engine and this session."""

    @property
    def opened(self) -> SparkSession | None:
        """The session, if anything has needed it."""
        return self._opened

    def open(self) -> SparkSession:
        with self._lock:
            if self._opened is None:
                self._on_opening()
                self._opened = self._site.session()
                if self._for_a_while is not None:
                    self._for_a_while.enter_context(configured(self._opened, self._conf))
            return self._opened

    @contextmanager
    def configured(self, conf: Mapping[str, str]) -> Iterator[None]:
        """Other settings for a while, also if the session is opened only then."""
        with ExitStack() as stack:
            with self._lock:
                self._conf, self._for_a_while = conf, stack
                if self._opened is not None:
                    stack.enter_context(configured(self._opened, conf))
            try:
                yield
            finally:
                self._conf, self._for_a_while = {}, None
