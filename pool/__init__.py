"""A pool of machines that runs whatever jobs people queue and gives each owner the machine back at once."""

TYPE_CHECKING = False  # typing is not imported for it: the version is all that some commands need
if TYPE_CHECKING:
    from pool.client.executor import Executor as Executor
    from pool.client.workflow_builder import Workflow as Workflow

__version__ = "0.1.0"
__all__ = ["Executor", "Workflow"]
_MODULES = {"Executor": "pool.client.executor", "Workflow": "pool.client.workflow_builder"}


def __getattr__(name: str) -> object:
    """`pool.Executor` and `pool.Workflow`, loaded when they are first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
