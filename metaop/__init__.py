"""metaop: deep learning in PyTorch's words, compiled from three families of operators.

Functions, types and classes are named as in PyTorch. Submodules (`metaop.nn`, `metaop.optim`, …)
are imported when they are first used, so that `import metaop` is quick.
"""

# Imports are packed, so that the whole list can be seen at once.
# ruff: noqa: I001

from __future__ import annotations

import importlib as _importlib
import math as _math
from typing import Any as _Any

from metaop.garbage import collection_paused as _collection_paused

# fmt: off
with _collection_paused():
    from metaop import dist as _dist
    from metaop import settings as _settings
    from metaop.dist.environment import adopt as _adopt
    from metaop.tensor.linear_algebra.contractions import dist as _distance
    from metaop.tensor.functions.conversion import get_default_dtype, set_default_dtype
    from metaop.tensor.core import Tensor
    from metaop.tensor.exports import *  # noqa: F403
    from metaop.tensor.generator import (
        Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state,
    )
    from metaop.tensor.operands import names_operands as _names_operands
    from metaop.tensor.grad_mode import (
        enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad,
        set_grad_enabled,
    )
    from metaop.tensor.sparse.layouts import (
        channels_last, channels_last_3d, contiguous_format, layout, legacy_contiguous_format,
        memory_format, preserve_format, sparse_coo, sparse_csc, sparse_csr, strided,
    )
    from metaop.tensor.legacy import set_default_tensor_type, typed_tensors
    from metaop.tensor.options import get_default_device, set_default_device
    from metaop.tensor.sharded.placing import global_mode as _global_mode
    from metaop.tensor.printing import set_printoptions
    from metaop.tensor.size import Size
    from metaop.tensor.storage import TypedStorage, UntypedStorage
    from metaop.tensor.type_info import finfo, iinfo
    from metaop.unified_graph.dtype import (
        DType as dtype, bfloat16, complex64, complex128, float8_e4m3fn, float8_e5m2, float16,
        float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_ as bool,
    )
    from metaop.unified_graph.tensor_type import Device as device
# fmt: on

_settings.check()
_adopt()
globals().update(typed_tensors("cpu", __name__))

try:
    from metaop._version import __version__
except ModuleNotFoundError:  # written when metaop is built or installed; this is a plain copy
    __version__ = "0.1.0.dev0"

half, double, float = float16, float64, float32
cfloat, cdouble = complex64, complex128
short, int, long = int16, int32, int64

e, pi, inf, nan = _math.e, _math.pi, _math.inf, _math.nan
newaxis = None

# PyTorch's function for the distance between two tensors shares its name with a package.
_dist.distance, _dist.global_mode = _names_operands(_distance, __name__), _global_mode

_SUBMODULES = frozenset(
    """
    __config__ absent accelerator amp ao array_api autograd backends control_flow cpu cuda data
    dist distributed distributions einops environment export fft func futures fx graph hub
    inspect kernels library linalg masked models mps multiprocessing nn onnx ops optim overrides
    profiler quasirandom random scripting serialization signal sparse special storage testing types
    utils version vision xpu
    """.split()
)

# Names whose modules few programs need; they are imported on first use.
_ELSEWHERE_BY_MODULE = {
    "accelerator": "get_device_module",
    "amp": "GradScaler",
    "ao.quantization": "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine",
    "amp.autocast": """
        autocast get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype
        is_autocast_cpu_enabled is_autocast_enabled set_autocast_dtype
    """,
    "capture": "jit",
    "capture.iterate": "iterate",
    "cuda.any_device": "Event Stream",
    "control_flow": "associative_scan cond fori_loop map scan while_loop",
    "budget": "memory_budget",
    "marking": "mark_dynamic mark_static",
    "distributed": "placement sbp",
    "distributions.counts": "binomial",
    "environment": """
        _assert _assert_async _check _shape_as_tensor are_deterministic_algorithms_enabled compile
        get_deterministic_debug_mode get_float32_matmul_precision get_num_interop_threads
        get_num_threads is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled
        set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal
        set_num_interop_threads set_num_threads set_warn_always typename
        use_deterministic_algorithms
    """,
    "errors": "OutOfMemoryError",
    "export": "load_program",
    "func": "vmap",
    "inspect": "profile",
    "kernels": "code kernel",
    "nn.functional": """
        adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear
        binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d
        conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss
        cosine_similarity ctc_loss dropout embedding embedding_bag feature_alpha_dropout
        group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss
        max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance
        native_channel_shuffle pixel_shuffle pixel_unshuffle poisson_nll_loss rms_norm rrelu
        rrelu_ selu selu_ threshold threshold_ triplet_margin_loss
    """,
    "nn.functional.native": "constant_pad_nd grid_sampler grid_sampler_2d grid_sampler_3d",
    "serialization": "load save",
    "sparse": "dsmm hsmm hspmm smm spmm sspaddmm",
    "symbolic_sizes": """
        SymBool SymFloat SymInt sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum
    """,
    "tuning": "tune",
}
_ELSEWHERE = {
    name: module for module, names in _ELSEWHERE_BY_MODULE.items() for name in names.split()
}


def __getattr__(name: str) -> _Any:
    if name in _ELSEWHERE:
        return getattr(_importlib.import_module(f"metaop.{_ELSEWHERE[name]}"), name)
    if name.startswith("_foreach_"):
        return _importlib.import_module("metaop.tensor.functions.lists").for_each(name)
    if name in _SUBMODULES:
        try:
            return _importlib.import_module(f"metaop.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"metaop.{name}":
                raise
    raise AttributeError(f"module 'metaop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELSEWHERE, *_SUBMODULES})


def _starred() -> list[str]:
    """The names that `from metaop import *` binds: functions, types and numbers, but no modules."""
    own = """
        annotations associative_scan code fetch fori_loop iterate jit kernel load_program map
        mark_dynamic mark_static memory_budget placement profile sbp scan tune typed_tensors
        while_loop
    """.split()
    here = {name for name, value in globals().items() if not isinstance(value, type(_math))}
    named = {name for name in here | {*_ELSEWHERE} if not name.startswith("_")}
    return sorted(named - {*own})


__all__ = _starred()
