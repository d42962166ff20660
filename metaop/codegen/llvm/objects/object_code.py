"""From LLVM IR text to a relocatable object: LLVM's passes and its code generator."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from metaop.codegen.llvm.builder import AS_WRITTEN
from metaop.codegen.llvm.system import host_system
from metaop.codegen.llvm.target import Target, host_target
from metaop.errors import InternalError

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# A part of the key of every cached object: increment it if the passes or the options below change.
VERSION = "8"
# Levels of LLVM's code generator. Around register tiles the higher one compiles an eighth longer
# without gain; searches along columns run a tenth faster with it.
_LEVEL, _LEVEL_AS_WRITTEN = 2, 1
# Quick code takes half of the time. It folds fewer loads into instructions, but registers are
# allocated with care: without that, whole steps ran up to a half longer, with it at most a tenth.
_LEVEL_QUICK = 0
_CAREFUL_ALLOCATION = "-optimize-regalloc=true"
# Loop strength reduction takes a third of the time of code generation. Around register tiles it
# gains nothing; a row norm runs a tenth longer without it. In long kernels, such as attention, it
# takes more than half of the time, and no step was faster with it. LLVM has one option per process.
_WITHOUT_REWRITING = "-disable-lsr"
_LONG = 1500  # lines
# How code finds addresses, by code model and whether it is for AArch64. Code that LLVM loads uses
# the options of Numba, which are proven on every system.
_RELOCATIONS = {
    ("small", False): "pic",
    ("small", True): "pic",
    ("large", False): "static",
    ("large", True): "default",
}

# llvmlite does not free all memory of passes when they are made again, and passes take longer the
# more often they have run.
_RUNS_OF_PASSES = 64
_runs = itertools.count()


def compile_object(
    ir_text: str, target: Target, optimise: bool = True, quick: bool = False
) -> bytes:
    """The relocatable object of a module given as LLVM IR text.

    Quick code gives the same bits, later. Raises `InternalError` with LLVM's message when the text
    is not a legal module.
    """
    with _generating(ir_text, target, optimise, quick) as (machine, module):
        content: bytes = machine.emit_object(module)
    return content


@contextlib.contextmanager
def _generating(
    ir_text: str, target: Target, optimise: bool, quick: bool
) -> Iterator[tuple[llvm.TargetMachine, llvm.ModuleRef]]:
    """The code generator, with its options for a text, and the module after LLVM's passes."""
    as_written = AS_WRITTEN in ir_text
    level = _LEVEL_QUICK if quick else _LEVEL_AS_WRITTEN if as_written else _LEVEL
    module = _module(ir_text, target, optimise, quick)
    with _loops(as_written or _is_long(ir_text)):
        yield _machine(target, level), module


def linked_object(ir_texts: Sequence[str], target: Target, exported: Collection[str]) -> bytes:
    """One relocatable object of several modules; only `exported` functions are visible outside.

    Raises `InternalError` with LLVM's message when a text is not a legal module.
    """
    first, *others = [_module(text, target, True) for text in ir_texts]
    for other in others:
        first.link_in(other)
    for function in first.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    content: bytes = _machine(target).emit_object(first)
    return content


def _is_long(ir_text: str) -> bool:
    return ir_text.count("\n") > _LONG


@contextlib.contextmanager
def _loops(as_they_are: bool) -> Iterator[None]:
    """A scope with or without loop strength reduction; other users of llvmlite always have it."""
    binding = llvm_binding()
    binding.set_option("", f"{_WITHOUT_REWRITING}={str(as_they_are).lower()}")
    try:
        yield
    finally:
        binding.set_option("", f"{_WITHOUT_REWRITING}=false")


def assembly(
    ir_text: str, target: Target | None = None, optimise: bool = True, quick: bool = False
) -> str:
    """The assembly that `compile_object` would encode."""
    with _generating(ir_text, target or host_target(), optimise, quick) as (machine, module):
        text: str = machine.emit_assembly(module)
    return text


def verify(ir_text: str) -> None:
    """Raises `InternalError` with LLVM's message when a text is not a legal module."""
    _module(ir_text, host_target(), False)


@functools.cache
def llvm_binding() -> Any:
    """llvmlite, imported and initialised at the first use because that takes 30 ms."""
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    # LLVM's default at every level but the lowest; an option cannot be unset again.
    binding.set_option("", _CAREFUL_ALLOCATION)
    return binding


@functools.cache
def _machine(target: Target, level: int = _LEVEL) -> llvm.TargetMachine:
    """A code generator for position-independent code."""
    return new_machine(target, level)


def new_machine(target: Target, level: int = _LEVEL) -> llvm.TargetMachine:
    """A code generator of the caller's own."""
    binding = llvm_binding()
    if target.triple != host_system().triple:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=level,
        reloc=_RELOCATIONS[target.code_model, target.is_arm],
        codemodel=target.code_model,
        jit=True,
    )


def _module(ir_text: str, target: Target, optimise: bool, quick: bool = False) -> llvm.ModuleRef:
    machine = _machine(target)
    try:
        module = llvm_binding().parse_assembly(ir_text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the generated code: {error}\n{ir_text}") from None
    if optimise:
        _run_passes(module, target, quick)
    return module


def _run_passes(module: llvm.ModuleRef, target: Target, quick: bool) -> None:
    passes, builder = _passes(target, quick, next(_runs) // _RUNS_OF_PASSES)
    passes.run(module, builder)


@functools.lru_cache(maxsize=2)
def _passes(target: Target, quick: bool, generation: int) -> tuple[Any, Any]:
    """The passes that pay for kernels, whose vectors and loops are already explicit.

    They take a quarter of the time of code generation, nearly all of it to combine instructions,
    for which quick code does not wait. The default pipeline takes as long as code generation and
    produces the same inner loops of a contraction.
    """
    binding = llvm_binding()
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    if not quick:
        passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    tuning = binding.create_pipeline_tuning_options()
    return passes, binding.create_pass_builder(_machine(target), tuning)
