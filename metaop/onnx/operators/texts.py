"""String operators, on arrays of strings on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import metaop
from metaop.onnx.table import ML, on_host, operator
from metaop.onnx.values import Host, to_host, to_tensor
from metaop.tensor.core import Tensor


@on_host("StringConcat")
def joined(x: Host, y: Host) -> np.ndarray:
    """Concatenates strings, element by element."""
    return np.asarray(x, object) + np.asarray(y, object)


@on_host("RegexFullMatch")
def matches(x: Host, *, pattern: str) -> np.ndarray:
    """Which strings a pattern matches entirely."""
    form = re.compile(pattern)
    found = [form.fullmatch(one) is not None for one in x.ravel()]
    return np.array(found, bool).reshape(x.shape)


@on_host("StringSplit")
def split(x: Host, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    """The parts of strings, padded with empty ones, and their numbers."""
    most = -1 if maxsplit is None else maxsplit
    rows = [one.split(delimiter or None, most) if one else [] for one in x.ravel()]
    width = max(map(len, rows), default=0)
    parts = np.full((len(rows), width), "", object)
    for k, row in enumerate(rows):
        parts[k, : len(row)] = row
    counts = np.array([len(row) for row in rows], np.int64)
    return parts.reshape((*x.shape, width)), counts.reshape(x.shape)


@on_host("StringNormalizer")
def normalised(
    x: Host,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] | None = None,
) -> np.ndarray:
    """Removes stop words, and converts to lower or upper case."""
    changes: dict[str, Any] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = changes[case_change_action]
    compare: Any = str if is_case_sensitive else str.lower
    dropped = {compare(word) for word in stopwords or ()}
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    found = [[change(one) for one in row if compare(one) not in dropped] for row in rows]
    found = [row or [""] for row in found]
    return np.array(found[0] if x.ndim == 1 else found, object)


@operator("LabelEncoder", domain=ML)
def labels(x: Any, **tables: Any) -> Any:
    """Maps keys, strings or numbers, to values."""
    keys = values = default = None
    for name, table in tables.items():
        if name.startswith("keys_"):
            keys = table
        elif name.startswith("values_"):
            values = table
        elif name.startswith("default_") and name.removeprefix("default_") in (
            "tensor",
            _kind_of(tables),
        ):
            default = table
    array = to_host(x)
    kind = _kind_of(tables)
    if default is None:
        default = {"string": "_Unused", "int64": -1, "float": -0.0}.get(kind, 0)
    default = np.asarray(default).reshape(-1)[0]
    assert keys is not None and values is not None
    pairs = dict(zip(_plain(keys), _plain(values)))
    nan = next((v for k, v in pairs.items() if isinstance(k, float) and k != k), default)
    found = [
        nan if isinstance(one, float) and one != one else pairs.get(one, default)
        for one in array.ravel().tolist()
    ]
    types = {"string": object, "int64": np.int64, "float": np.float32}
    made = types.get(kind) or np.asarray(values).dtype
    result = np.array(found, made).reshape(array.shape)
    return result if made is object or result.dtype == object else to_tensor(result)


def _plain(values: Any) -> list[Any]:
    return (
        values.ravel().tolist()
        if isinstance(values, np.ndarray)
        else [float(np.float32(one)) if isinstance(one, float) else one for one in values]
    )


def _kind_of(tables: dict[str, Any]) -> str:
    """The kind of a table's values: float, int64, string or tensor."""
    name = next(name for name in tables if name.startswith("values_"))
    return name.removeprefix("values_").removesuffix("s")


@operator("TfIdfVectorizer")
def count_sequences(
    x: Host,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Counts n-grams, with gaps of up to a length."""
    pool = list(pool_int64s if pool_strings is None else pool_strings)  # type: ignore[arg-type]
    places: dict[tuple, int] = {}
    starts = [*ngram_counts, len(pool)]
    for length, (start, end) in enumerate(pairwise(starts), 1):
        for place in range(start, end, length):
            places[tuple(pool[place : place + length])] = len(places)
    rows = x.reshape(1, -1) if x.ndim <= 1 else x
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, words in zip(counts, rows.tolist()):
        for length in range(min_gram_length, max_gram_length + 1):
            # Single words have no gaps.
            for gap in range(1, 2 if length == 1 else max_skip_count + 2):
                for first in range(len(words) - (length - 1) * gap):
                    gram = tuple(words[first + k * gap] for k in range(length))
                    if gram in places:
                        row[ngram_indexes[places[gram]]] += 1
    factors = np.ones(counts.shape[1], np.float32)
    if weights is not None:
        for place, weight in zip(ngram_indexes, weights):
            factors[place] = weight
    present = (counts > 0).astype(np.float32)
    found = {"TF": counts, "IDF": present * factors, "TFIDF": counts * factors}[mode]
    return metaop.tensor(found.reshape(-1) if x.ndim <= 1 else found)
