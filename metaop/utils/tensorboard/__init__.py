"""Event files for TensorBoard, written through the `tensorboard` package.

As in PyTorch, importing a name of this module raises an ImportError where that package is missing,
so that programs which do without can catch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaop.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from metaop.utils.tensorboard import writer

    writer.package()
    return getattr(writer, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
