"""The identity of a process that holds a lease or makes a commit, and whether such a process is alive.

A process is identified by the kernel's boot, its PID namespace, its PID, and its start in ticks since that boot; a PID
alone is reused. A process of the same boot and namespace can ask the kernel whether it is alive; all others know only
whether it renews its lease.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from errata.model.commit import Cause

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_STATE, _START_TIME = 0, 19
"""Indexes of two fields in /proc/PID/stat, counted after the program's name."""
_ENDED_STATES = "ZX"
"""States of a process that has ended and whose parent has not collected its status yet."""


class Liveness(StrEnum):
    """Whether a process is alive."""

    LIVING = "living"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """It runs on another machine, or this system cannot tell."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that holds a lease."""

    host: str = ""
    user: str = ""
    boot: str = ""
    """The identifier of the kernel's boot; empty where there is none, as outside of Linux."""
    namespace: str = ""
    """The PID namespace, within which the PID is unique."""
    pid: int = 0
    started: int = 0
    """The start, in ticks since the boot."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ProcessIdentity:
        return cls(**record)

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def description(self) -> str:
        """For a person: `process 4711 of ann on host vm`."""
        if not self.pid:
            return "a process that nothing is known of"
        return f"process {self.pid}{f' of {self.user}' if self.user else ''} on host {self.host}"

    @property
    def life(self) -> Liveness:
        """Whether it is alive now, if the kernel of this machine can tell."""
        if not (self.boot and self.pid) or (self.boot, self.namespace) != (_boot_id(), _pid_namespace()):
            return Liveness.UNKNOWN
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return Liveness.DEAD
        except OSError:
            pass  # it exists and belongs to another user
        found = _process_stat(self.pid)
        if found is None:
            return Liveness.UNKNOWN
        state, started = found
        return Liveness.LIVING if started == self.started and state not in _ENDED_STATES else Liveness.DEAD


def this_process() -> ProcessIdentity:
    """This process. It is looked up each time, since a fork is another process."""
    pid = os.getpid()
    found = _process_stat(pid)
    boot = _boot_id() if found is not None else ""
    return ProcessIdentity(
        socket.gethostname(), _user_name(), boot, _pid_namespace(), pid, 0 if found is None else found[1]
    )


def _process_stat(pid: int) -> tuple[str, int] | None:
    """The state and the start of a process; None where the system does not tell."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = told.rpartition(")")[2].split()
    return fields[_STATE], int(fields[_START_TIME])


def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(_NAMESPACE.readlink())
    except OSError:
        return ""


def cause_for(flow: str, base: Cause | None = None) -> Cause:
    """The cause of a commit that this process makes; `base` says what is known of it besides."""
    known = base or Cause("")
    return replace(known, flow=flow, user=known.user or _user_name(), host=known.host or socket.gethostname())


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""
