"""The output of scripts that SCRIPT DEBUG keeps: added to the debug file as a whole, when the script has ended, once.

A script writes into files of its own beside the debug file. A restart of the schedd between the addition and the
removal of those files finds the banner in the debug file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pool.errors import PoolError
from pool.policy.workflow.words import script_banner
from pool.shadow.files import UserFiles

#: Bytes of one script's output that are kept, and of a debug file that are searched after a restart.
MOST = 16 << 20
_COMPLETION = re.compile(r"Completion=([0-9]{1,15}) ")
#: Seconds by which the end of a script may be told differently after a restart.
NEAR = 2


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """Where the output of one run of a script goes.

    Attributes:
        file: the debug file. base: the path of the script's own files, without their ends.
        streams: `STDOUT`, `STDERR` or `ALL`.
        banner: of the end, without exit code and time: node, moment and command.
    """

    file: str
    base: str
    streams: str
    node: str
    moment: str
    command: str

    def attributes(self) -> dict[str, str]:
        """Of the script's job."""
        return {
            "Out": f"{self.base}.out" if self.streams != "STDERR" else "/dev/null",
            "Err": f"{self.base}.err" if self.streams != "STDOUT" else "/dev/null",
        }

    async def collect(self, files: UserFiles, code: int, ended: float, *, again: bool) -> None:
        """Add what the script has written to the debug file.

        Args:
            again: another run of the schedd may have done it.

        Raises:
            PoolError: it cannot be written.
        """
        own = [path for path in self.attributes().values() if path != "/dev/null"]
        said = bytearray()
        for path in own:
            try:
                async for piece in files.read(path, length=MOST):
                    said += piece
            except PoolError:
                if again:  # it was added, and removed
                    return
        banner = script_banner(self.node, self.moment, code, int(ended), self.command)
        if not (again and await self._has(files, banner, int(ended))):
            if said and not said.endswith(b"\n"):
                said += b"\n"
            await files.append(self.file, banner.encode(errors="surrogateescape") + bytes(said))
        for path in own:
            try:
                await files.remove(path)
            except PoolError:
                continue

    async def _has(self, files: UserFiles, banner: str, ended: int) -> bool:
        try:
            size = (await files.stat(self.file)).size
            data = b"".join([piece async for piece in files.read(self.file, offset=max(0, size - MOST))])
        except PoolError:
            return False
        start = banner.partition("Completion=")[0]
        for line in data.decode(errors="surrogateescape").splitlines():
            found = _COMPLETION.search(line) if line.startswith(start) else None
            if found is not None and abs(int(found[1]) - ended) <= NEAR:
                return True
        return False
