"""The sensors of a machine that does not exist: a test sets what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

#: How idle a machine is that nobody was ever seen at.
UNTOUCHED = 10**6


class _NotifyingDict(dict[str, Any]):
    """Facts that tell of each change."""

    def __init__(self, facts: Mapping[str, Any], changed: Callable[[], None]) -> None:
        super().__init__(facts)
        self._changed = changed

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._changed()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._changed()

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self._changed()

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def pop(self, *args: Any) -> Any:
        self._changed()
        return super().pop(*args)


class FakeSensors:
    """Facts that a test changes.

    Attributes:
        facts: what `read` answers; change it while the pool runs.
        touched: wall time at which the owner last touched the keyboard, None for never.
        owners_load: what the owner's own programs cause.
        jobs_load: the load that each running job of the pool causes; it is in the whole load, and counted separately
            only for the keepers that the startd says are its own.
    """

    def __init__(self, name: str, *, cpus: int = 1, memory: int = 4096) -> None:
        self._listener: Callable[[], None] = lambda: None
        self._roots: Callable[[], Iterable[int]] = tuple
        self.name = name
        self.touched: float | None = None
        self.owners_load = 0.0
        self.jobs_load = 0.0
        self.facts: dict[str, Any] = {
            "Arch": "X86_64",
            "OpSys": "LINUX",
            "OpSysAndVer": "Debian12",
            "Cpus": cpus,
            "Memory": memory,
            "Disk": 10**7,
        }

    async def start(self) -> None:
        """There is nothing to start."""

    async def stop(self) -> None:
        """There is nothing to stop."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _NotifyingDict(value, self.changed) if name == "facts" else value)
        if not name.startswith("_"):
            self.changed()

    def subscribe(self, changed: Callable[[], None]) -> bool:
        self._listener = changed
        return True

    def changed(self) -> None:
        """Something is not as it was."""
        self._listener()

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        self._roots = roots

    def loads(self) -> dict[int, float]:
        return dict.fromkeys(self._roots(), self.jobs_load)

    def read(self, wall: float) -> dict[str, Any]:
        idle = int(wall - self.touched) if self.touched is not None else UNTOUCHED
        own = self.jobs_load * len(list(self._roots()))
        load = own + self.owners_load
        loads = {"LoadAvg": self.owners_load, "TotalLoadAvg": load, "TotalCondorLoadAvg": own}
        return {**loads, "KeyboardIdle": idle, "ConsoleIdle": idle, **self.facts}
