"""Custom kernels: `@metaop.kernel`, `metaop.code`, and the words of the language of kernels."""

from metaop.kernels.debugger import Debugger
from metaop.kernels.foreign import code
from metaop.kernels.kernel import Kernel, Output, kernel
from metaop.kernels.language import (
    atomic_add,
    atomic_max,
    atomic_min,
    barrier,
    cast,
    copy,
    fill,
    lanes,
    scratch,
    shared,
    task,
    tasks,
)
