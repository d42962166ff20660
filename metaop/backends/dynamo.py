"""Switches of PyTorch's tracer, which metaop does not have: they can be set and read."""

from __future__ import annotations

import sys
from functools import partial

from metaop.backends.switches import patched

accumulated_cache_size_limit = 256
assume_static_by_default = True
automatic_dynamic_shapes = True
cache_size_limit = recompile_limit = 8
capture_dynamic_output_shape_ops = False
capture_scalar_outputs = False
dynamic_shapes = True
guard_nn_modules = True
inline_inbuilt_nn_modules = True
optimize_ddp = True
suppress_errors = False
verbose = False

patch = partial(patched, sys.modules[__name__])
