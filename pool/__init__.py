"""A pool of machines that runs whatever jobs people queue and gives each owner the machine back at once."""

TYPE_CHECKING = False  # typing is not imported for it: the version is all that some commands need
if TYPE_CHECKING:
    from pool.client.executor import Executor as Executor

__version__ = "0.1.0"
__all__ = ["Executor"]


def __getattr__(name: str) -> object:
    """`pool.Executor`, loaded when it is first used."""
    if name != "Executor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pool.client.executor import Executor

    return Executor
