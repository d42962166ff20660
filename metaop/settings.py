"""Every METAOP_* environment variable: its type, default and meaning in one table."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from metaop.errors import ArgumentError


class Size(int):
    """A number of bytes, which users may write with a unit."""


class Setting(NamedTuple):
    """One environment variable. `default` is the text that stands for an unset variable.

    Numbers must lie between `least` and `most`, texts among `choices` if there are any.
    """

    name: str
    type: type
    default: str
    meaning: str
    least: float = 0
    most: float = math.inf
    choices: tuple[str, ...] = ()


# The largest number of threads or processes: more than any machine has cores is a mistake.
_MOST = 4096

SETTINGS = (
    Setting("METAOP_CACHE_DIR", str, "~/.cache/metaop", "folder of compiled kernels"),
    Setting("METAOP_DISK_CACHE", bool, "true", "keep compiled kernels between processes"),
    Setting("METAOP_CACHE_BYTES", int, str(1 << 30), "size bound of the folder of kernels"),
    Setting(
        "METAOP_BACKEND",
        str,
        "llvm",
        "CPU backend: llvm, or reference (NumPy, the oracle)",
        choices=("llvm", "reference"),
    ),
    Setting(
        "METAOP_EXPLAIN", bool, "false", "print why nodes share a kernel, and how it is lowered"
    ),
    Setting(
        "METAOP_DUMP",
        str,
        "",
        "folder for text files of what each pass makes of every program that is compiled",
    ),
    Setting(
        "METAOP_PENDING_LIMIT", int, "4000", "recorded calls that may wait to be computed", least=1
    ),
    Setting(
        "METAOP_TARGET",
        str,
        "native",
        "CPU code: native, avx512, avx2 or baseline",
        choices=("native", "avx512", "avx2", "baseline"),
    ),
    Setting("METAOP_AMX", bool, "true", "use matrix registers for bfloat16 if there are any"),
    Setting(
        "METAOP_PORTABLE",
        bool,
        "false",
        "wait, load code and share memory on Linux as on systems that lack what only Linux has",
    ),
    Setting("METAOP_NUM_THREADS", int, "0", "threads of a kernel; 0 means every core", most=_MOST),
    Setting("METAOP_REROLL", bool, "true", "run loops that Python has written out as loops"),
    Setting(
        "METAOP_COMPILE_PROCESSES",
        int,
        "-1",
        "processes that help to compile; -1 means one less than threads, at most 4",
        least=-1,
        most=_MOST,
    ),
    Setting(
        "METAOP_TIERS",
        bool,
        "true",
        "compile kernels quickly, and again for speed once they have run for as long as that takes",
    ),
    Setting("METAOP_ALL_RANKS_TALK", bool, "false", "progress bars and logs from every rank"),
    Setting(
        "METAOP_WINOGRAD",
        bool,
        "true",
        "Winograd's method for 3 or 5 taps, where it rounds at most 4 times as much as plain sums",
    ),
    Setting(
        "METAOP_SIZES",
        str,
        "any",
        "programs for any size from the second size on, or for each its own (exact)",
        choices=("any", "exact"),
    ),
    Setting(
        "METAOP_PIECES",
        str,
        "changing",
        "run subgraphs call by call never, first where a line brings ever new structures, first "
        "everywhere, or always",
        choices=("never", "changing", "first", "always"),
    ),
    Setting(
        "METAOP_TUNE",
        str,
        "stored",
        "contractions as the model chooses (off), as they were tuned before (stored), or tuned "
        "when they are compiled (search)",
        choices=("off", "stored", "search"),
    ),
    Setting(
        "METAOP_MACHINE",
        str,
        "measured",
        "schedules for the processor as `python -m metaop tune --machine` has measured it "
        "(measured), or for a typical one with its instructions and caches (typical)",
        choices=("measured", "typical"),
    ),
    Setting("METAOP_WATCHDOG_SECONDS", float, "30", "after which a late rank is named"),
    Setting("METAOP_TIMEOUT_SECONDS", float, "1800", "after which waiting for a rank is an error"),
    Setting(
        "METAOP_MEMORY_CACHE_BYTES",
        int,
        "-1",
        "freed host memory kept for reuse; -1 means a quarter of the machine's memory",
        least=-1,
    ),
    Setting(
        "METAOP_MEMORY_BUDGET",
        Size,
        "0",
        "what a program may take besides its arguments, like 500MB; 0 means as much as it likes",
    ),
    Setting(
        "METAOP_SPILL",
        str,
        "",
        "folder to which programs under a budget may spill values; empty: they compute them again",
    ),
    Setting(
        "METAOP_VERIFY",
        bool,
        "false",
        "check every kernel and memory plan: what is read is there, and nothing overlaps",
    ),
    Setting(
        "METAOP_POISON",
        bool,
        "false",
        "set all bits of memory that is handed out, so that a value read too early is NaN",
    ),
)

_UNITS = {
    unit.lower(): base**power
    for base, names in ((1000, ("", "KB", "MB", "GB", "TB")), (1024, ("B", "KiB", "MiB", "GiB")))
    for power, unit in enumerate(names)
}


@functools.lru_cache(maxsize=16)
def _size(text: str) -> int:
    number = text.strip().rstrip("KMGTiBkmgtb").strip()
    unit = text.strip()[len(number) :].strip().lower()
    return int(float(number.replace("_", "")) * _UNITS[unit])


_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TRUTH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off", ""), False),
}
_PARSERS: dict[type, Callable[[str], Any]] = {
    bool: lambda text: _TRUTH[text.strip().lower()],
    int: lambda text: int(text.replace("_", "")),
    float: float,
    str: lambda text: text,
    Size: lambda text: Size(_size(text)),
}


def get(name: str) -> Any:
    """The value of a setting, read from the environment at each call.

    Raises `ArgumentError` if the text of the variable is not a legal value.
    Example: `get("METAOP_DISK_CACHE")` is `True` unless the environment says otherwise.
    """
    return _value(name, os.environ.get(name))


# Some settings are read for every new signature.
@functools.lru_cache(maxsize=256)
def _value(name: str, given: str | None) -> Any:
    setting = _BY_NAME[name]
    text = setting.default if given is None else given
    try:
        value = _PARSERS[setting.type](text)
    except (KeyError, ValueError, OverflowError):
        raise _illegal(setting, text, f"which is no {setting.type.__name__.lower()}") from None
    if setting.choices and value not in setting.choices:
        raise _illegal(setting, text, f"but it has to be {' or '.join(setting.choices)}")
    if setting.type in (int, float, Size) and not setting.least <= value <= setting.most:
        raise _illegal(setting, text, f"but it has to be {_range(setting)}")
    return value


def bytes_of(size: int | str) -> int:
    """Parses a number of bytes, or a text like `"500MB"`, `"1.5 GiB"`.

    MB are 10**6 bytes and MiB 2**20, in upper or lower case. Raises ArgumentError for any other
    text, and for less than one byte.
    """
    try:
        found = _size(size) if isinstance(size, str) else operator.index(size)
    except (KeyError, ValueError, TypeError, OverflowError):
        found = 0
    if found < 1:
        raise ArgumentError(
            f"{size!r} is not a number of bytes", fix='give a whole number, or a text like "500MB"'
        )
    return found


def text_of_bytes(nbytes: int) -> str:
    """A number of bytes as text, in MB if large; it is rounded up, so parsing never gives less."""
    return f"{math.ceil(nbytes / 1e5) / 10:.1f} MB" if nbytes >= 10**7 else f"{nbytes} B"


def check() -> None:
    """Raises `ArgumentError` if any METAOP_* variable has an illegal value."""
    for setting in SETTINGS:
        get(setting.name)
    for name in ("METAOP_CACHE_DIR", "METAOP_DUMP"):
        setting, folder = _BY_NAME[name], os.path.expanduser(get(name))
        is_file = os.path.exists(folder) and not os.path.isdir(folder)
        if folder != setting.default and (is_file or not folder):
            raise _illegal(setting, folder, "which is not a folder")


def _range(setting: Setting) -> str:
    upper = "" if setting.most == math.inf else f" and at most {setting.most:g}"
    return f"at least {setting.least:g}{upper}"


def _illegal(setting: Setting, text: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"the environment variable {setting.name} is {text!r}, {why}",
        fix=f"unset it or set it like {setting.name}={setting.default} ({setting.meaning})",
    )
