"""Every argument of what users call does something, or stands in a list that says why not."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache

import metaop
from metaop.distributed.graph_config import GraphConfig
from tests.repository.unused_arguments import unused

# Rooms of the compiler: functions of one signature in tables, which nobody else calls.
INNER = (
    "capture", "codegen", "elementwise", "fx.interception", "inspect.profiler", "kernels",
    "onnx.operators", "reduce", "reindex", "serialization.allowed_names", "serialization.builder",
    "tensor.casting", "unified_graph", "vision.transforms.pillow",
)  # fmt: skip
# Methods that a base class calls alike for all of its classes.
SHARED = {
    "__call__", "advance", "build", "closed", "compute_mask", "first_value", "following",
    "get_attr", "log_abs_det_jacobian", "output", "placeholder", "rule", "state_names",
}  # fmt: skip
# Arguments that mean the same wherever they stand.
EVERYWHERE = {
    "download": "nothing is downloaded: an error tells where the files belong",
    "foreach": "PyTorch's choice between kernels that compute the same",
    "memory_format": "tensors have one order of dimensions in memory",
    "non_blocking": "a copy waits where its value is read",
    "pin_memory": "transfers choose their own memory",
    "progress": "downloads have no bar",
}
ONE_RESULT = "it chooses between ways to the same numbers"
ALWAYS = "what it asks for is so in any case"
ONE_STREAM = "one stream of work and of random numbers serves all devices"
NO_DEVICE = "there is one such device, or none"
NO_COMPILER = "nothing has to be told to a compiler, or kept from it"
DESCRIBED = "the docstring says what is done instead"
CALLED_ALIKE = "all policies are called with the same arguments"
LEGAL = {
    CALLED_ALIKE: {
        "always_wrap_policy": {"args", "kwargs"},
        "lambda_auto_wrap_policy": {"nonwrapped_numel"},
        "transformer_auto_wrap_policy": {"nonwrapped_numel"},
    },
    ONE_RESULT: {
        "choose_kernels": {"differentiable", "params", "use_fused"},
        "autocast.__init__": {"cache_enabled"},
        "flags": {"allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled"},
        "flex_attention": {"kernel_options"},
        "linear_cross_entropy": {"options"},
        "sdp_kernel": {"enable_cudnn", "enable_flash", "enable_math", "enable_mem_efficient"},
        "sdpa_kernel": {"backends", "set_priority"},
        "isin": {"assume_unique"},
        "TypedLinear.forward": {"sorted_by_type"},
        "SummaryWriter.add_scalar": {"new_style"},
    },
    ALWAYS: {
        "FileLister.__init__": {"non_deterministic"},
        "Graph.find_nodes": {"sort"},
        "sort": {"stable"},
        "topk": {"sorted"},
        "unique": {"sorted"},
        "Event.__init__": {"blocking", "enable_timing", "interprocess"},
        "Work.wait": {"timeout"},
        "monitored_barrier": {"wait_all_ranks"},
        "FullyShardedDataParallel.__init__": {
            "backward_prefetch", "cpu_offload", "forward_prefetch", "limit_all_gathers",
            "sync_module_states",
        },
        "DistributedDataParallel.__init__": {"find_unused_parameters", "static_graph"},
        "to_global": {"copy"},
        "redistribute": {"async_op"},
        "assert_close": {"check_layout"},
        "sparse_compressed_tensor": {"check_invariants"},
        "sparse_coo_tensor": {"check_invariants"},
        "sparse_csc_tensor": {"check_invariants"},
        "sparse_csr_tensor": {"check_invariants"},
        "load": {"mmap", "pickle_module", "_options"},
        "save": {
            "_disable_byteorder_record", "_use_new_zipfile_serialization", "pickle_module",
            "pickle_protocol",
        },
        "save_model": {"force_contiguous"},
    },
    ONE_STREAM: {
        "Event.record": {"stream"},
        "Stream.__init__": {"options"},
        "Future.__init__": {"devices"},
        "fork_rng": {"devices"},
        "get_rng_state": {"device"},
        "set_rng_state": {"device"},
        "stream": {"stream"},
    },
    NO_DEVICE: {
        **{
            name: {"device"}
            for name in (
                "current_stream", "max_memory_allocated", "max_memory_reserved",
                "memory_allocated", "memory_reserved", "memory_stats", "synchronize",
            )
        },
    },
    NO_COMPILER: {
        "annotate": {"the_type"},
        "create_block_mask": {"_compile"},
        "compile": {"backend", "disable", "dynamic", "fullgraph", "mode", "options"},
        "disable": {"reason", "recursive"},
        "set_stance": {"force_backend", "skip_guard_eval_unsafe", "stance"},
        "no_compilation": {"single_tensor_fn"},
        "optimized_execution": {"should_optimize"},
        "ignore": {"_options"},
        "export": {"_more", "_options", "strict"},
        **{
            name: {"_more", "_options"}
            for name in (
                "freeze", "interface", "optimize_for_inference", "script", "script_if_tracing",
                "script_method", "trace", "trace_module", "unused",
            )
        },
    },
    DESCRIBED: {
        "fully_shard": {"reshard_after_forward"},
        "current_accelerator": {"check_available"},
        "custom_bwd": {"device_type"},
        "save_on_cpu": {"device_type"},
        "FullyShardedDataParallel.summon_full_params": {"offload_to_cpu"},
        "is_acceptable": {"tensor"},
        "is_available": {"tensors"},
        "make_graphed_callables": {
            "allow_unused_input", "num_warmup_iters", "pool", "sample_args",
        },
        "memory_summary": {"abbreviated"},
        "pin_memory": {"device"},
        "is_pinned": {"device"},
        "init_process_group": {"group_name"},
        "get_backend": {"group"},
        "broadcast_object_list": {"device"},
        **{name: {"device", "use_batch"} for name in ("recv_object_list", "send_object_list")},
        "new_group": {"group_desc"},
        "data_parallel": {"dim"},
        "DTensor.from_local": {"run_check", "stride"},
        "PipelineStage.__init__": {"input_args", "output_args"},
        "set_flush_denormal": {"mode"},
        "gumbel_softmax": {"eps"},
        "log_softmax": {"_stacklevel"},
        "softmax": {"_stacklevel"},
        "Identity.__init__": {"args", "kwargs"},
        "GraphModule.__new__": {"args", "kwargs"},
        "Interpreter.run": {"enable_io_processing"},
        "Node.is_impure": {"impure_random"},
        "register_pytree_node": {
            "from_dumpable_context",
            "serialized_type_name",
            "to_dumpable_context",
        },
        "profile.__init__": {
            "activities", "options", "profile_memory", "record_shapes", "with_flops",
            "with_modules", "with_stack",
        },
        "profile.key_averages": {
            "group_by_input_shape", "group_by_overload_name", "group_by_stack_n",
        },
        "record_function.__init__": {"args"},
        "checkpoint": {"debug"},
        **{
            name: {"input"}
            for name in ("coalesce", "is_coalesced", "is_conj", "is_neg", "sparse_dim")
        },
        "SummaryWriter.add_graph": {"input_to_model", "use_strict_trace", "verbose"},
    },
    "others of its table have the same signature": {
        "AbsentMesh.box": {"parts", "shape", "source", "target"},
        **{
            f"collate_{kind}_fn": {"collate_fn_map"}
            for kind in ("float", "int", "numpy_array", "str", "tensor")
        },
        "DistributedProgram.run": {"memory"},
        "MPIMesh.line": {"place"},
        "MemoryRecord.computed": {"end", "start"},
        "Pieces.run": {"memory"},
        "noop_mask": {"head", "token_kv", "token_q"},
        "restricted": {"extent"},
        "run_in_turns": {"stages"},
        "set_grad_enabled.__new__": {"mode"},
        "wrapped": {"context", "input", "return_scalar"},
    },
}  # fmt: skip


def functions() -> Iterator[tuple[str, object]]:
    """The public functions, and methods of classes, by their name; tensors' are functions too."""
    for info in pkgutil.walk_packages(metaop.__path__, "metaop."):
        inner = tuple(f"metaop.{room}" for room in INNER)
        if any(part.startswith("_") for part in info.name.split(".")) or info.name in inner:
            continue
        if info.name.startswith(tuple(f"{room}." for room in inner)):
            continue
        module = importlib.import_module(info.name)
        for name, value in list(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", "") != info.name:
                continue
            if inspect.isfunction(value):
                yield name, value
            elif inspect.isclass(value) and name not in ("Tensor", "SparseTensor"):
                for method, plain in vars(value).items():
                    function = getattr(plain, "__func__", plain)
                    is_public = not method.startswith("_") or method in ("__init__", "__new__")
                    if inspect.isfunction(function) and is_public and method not in SHARED:
                        yield f"{name}.{method}", function


@cache
def found() -> dict[str, set[str]]:
    """The unused arguments by the name of their function."""
    hints = {name for name, value in vars(GraphConfig).items() if value is GraphConfig._accept}
    result: dict[str, set[str]] = {}
    for name, function in functions():
        code = inspect.unwrap(function).__code__  # type: ignore[arg-type]
        # Dataclasses and named tuples make methods that have no source.
        if code.co_filename.startswith("<") or name.rpartition(".")[2] in hints:
            continue
        if names := unused(function):
            result.setdefault(name, set()).update(names)
    return result


def test_an_argument_that_does_nothing_has_a_reason() -> None:
    legal = {name: given for table in LEGAL.values() for name, given in table.items()}
    surprising = {
        name: names - EVERYWHERE.keys() - legal.get(name, set()) for name, names in found().items()
    }
    assert not {name: names for name, names in surprising.items() if names}


def test_a_reason_is_of_an_argument_that_does_nothing() -> None:
    for table in LEGAL.values():
        for name, given in table.items():
            assert given <= found().get(name, set()), name
    everything = set().union(*found().values())
    assert everything >= EVERYWHERE.keys()
