"""Switches of PyTorch's code generator, which metaop does not have: they can be set and read."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

from metaop.backends.switches import patched

conv_1x1_as_mm = False
coordinate_descent_check_all_directions = False
coordinate_descent_tuning = False
debug = False
epilogue_fusion = True
fallback_random = False
force_disable_caches = False
force_fuse_int_mm_with_mul = False
freezing = False
fx_graph_cache = True
max_autotune = False
max_autotune_gemm = False
shape_padding = True

cpp = SimpleNamespace(threads=-1)
trace = SimpleNamespace(enabled=False)
triton = SimpleNamespace(cudagraph_trees=True, cudagraphs=False, unique_kernel_names=True)

patch = partial(patched, sys.modules[__name__])
