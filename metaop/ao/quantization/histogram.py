"""Observers that keep a histogram and clip outliers."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.ao.quantization.observer import UniformQuantizationObserverBase
from metaop.ao.quantization.scheme import QScheme
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.counting import histc
from metaop.tensor.functions.creation import tensor, zeros
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.dtype import float32

# Into how many parts a bin is divided when a histogram is redistributed over a wider range.
_PARTS = 16
# The share of all values by which a limit moves in one step of the search.
_STEP = 1e-5


class HistogramObserver(UniformQuantizationObserverBase):
    """The range with the smallest squared quantisation error over all values so far.

    A histogram of `bins` bins of equal width counts the values. The search for the range and its
    objective are PyTorch's. All channels share one range; infinities are ignored.
    """

    histogram: Tensor

    def __init__(self, bins: int = 2048, **named: Any) -> None:
        scheme = named.get("qscheme")
        if isinstance(scheme, QScheme) and scheme.is_per_channel:
            raise ArgumentError(
                f"{type(self).__name__} has one range for all channels, got {scheme.value}",
                fix="use PerChannelMinMaxObserver",
            )
        super().__init__(**named)
        self.bins = bins
        self.register_buffer("histogram", zeros(bins))

    @no_grad()
    def forward(self, x: Tensor) -> Tensor:
        numbers = x.detach().to(float32).flatten()
        found = numbers.numpy(force=True)
        if not np.isfinite(found).all():
            found = found[~np.isinf(found)]
            numbers = tensor(found)
        if not found.size:
            return x
        least, greatest = found.min(), found.max()
        old_least, old_greatest = (float(v) for v in (self.min_val, self.max_val))
        is_first = old_least > old_greatest
        if not is_first:
            least, greatest = min(least, old_least), max(greatest, old_greatest)
        counts = histc(numbers, self.bins, float(least), float(greatest)).numpy(force=True)
        if not is_first:
            counts = counts + self._spread(old_least, old_greatest, least, greatest)
        self._keep(tensor(np.float32(least)), tensor(np.float32(greatest)))
        self.histogram.copy_(tensor(counts.astype(np.float32)))
        return x

    def _spread(
        self, least: float, greatest: float, new_least: float, new_greatest: float
    ) -> np.ndarray:
        """The histogram so far, redistributed over a wider range."""
        counts = self.histogram.numpy(force=True)
        if (least, greatest) == (new_least, new_greatest):
            return counts
        if least == greatest:
            place = np.histogram([least], self.bins, (new_least, new_greatest))[0]
            return place * counts.sum()
        parts = self.bins * _PARTS
        middles = np.linspace(least, greatest, parts + 1)[:-1] + 0.5 * (greatest - least) / parts
        ends = np.linspace(new_least, new_greatest, self.bins + 1)
        places = np.clip(np.searchsorted(ends, middles, "right") - 1, 0, self.bins - 1)
        return np.bincount(places, np.repeat(counts, _PARTS) / _PARTS, self.bins)

    def reset_min_max_vals(self) -> None:
        """Forgets all values."""
        super().reset_min_max_vals()
        self.histogram.zero_()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point (1,) for the range that the search finds."""
        least, greatest = float(self.min_val), float(self.max_val)
        if least > greatest:
            return super().calculate_qparams()
        first, last = self._bins_to_keep(self.histogram.numpy(force=True).astype(np.float64))
        width = (greatest - least) / self.bins
        ends = least + width * first, least + width * (last + 1)
        return self._qparams_of(*(tensor(np.float32(end)) for end in ends))

    def _bins_to_keep(self, counts: np.ndarray) -> tuple[int, int]:
        """The first and the last bin of the range: its ends move inwards while the loss falls."""
        until, total = np.cumsum(counts), counts.sum()
        first, last, best = 0, self.bins - 1, float("inf")
        below, above = 0.0, 1.0
        while below < above:
            next_below, next_above = below + _STEP, above - _STEP
            left = min(int(np.searchsorted(until, next_below * total, "left")), last)
            left = max(left, first)
            right = int(np.searchsorted(until, next_above * total, "right")) - 1
            right = min(max(right, first), last)
            new_first, new_last = first, last
            if left - first > last - right:
                new_first, below = left, next_below
            else:
                new_last, above = right, next_above
            if (new_first, new_last) == (first, last):
                continue
            loss = self._loss(counts, new_first, new_last)
            if loss > best:
                break
            best, first, last = loss, new_first, new_last
        return first, last

    def _loss(self, counts: np.ndarray, first: int, last: int) -> float:
        """The squared error of the range from bin `first` to bin `last`, in squared bin widths.

        It assumes that values are evenly distributed within their bins.
        """
        values = 1 << (8 * self.dtype.itemsize)
        width = (last - first + 1) / values
        starts = np.arange(self.bins) - float(first)
        ends = starts + 1
        at_start, at_end = (np.clip(np.floor(x / width), 0, values - 1) for x in (starts, ends))
        begun = _squares(starts - (at_start + 0.5) * width, width / 2)
        whole = (at_end - at_start - 1) * _squares(-width / 2, width / 2)
        ended = _squares(-width / 2, ends - (at_end + 0.5) * width)
        return float((counts * (begun + whole + ended)).sum())


class PercentileObserver(HistogramObserver):
    """The range of the central `percentile` percent of all values; both tails lose equally many."""

    def __init__(self, percentile: float = 99.99, bins: int = 2048, **named: Any) -> None:
        if not 50 < percentile <= 100:
            raise ArgumentError(
                f"PercentileObserver: percentile {percentile} must be above 50 and at most 100",
                fix="use 99.99",
            )
        super().__init__(bins, **named)
        self.percentile = percentile

    def _bins_to_keep(self, counts: np.ndarray) -> tuple[int, int]:
        outside = (1 - self.percentile / 100) / 2 * counts.sum()
        first = int(np.searchsorted(np.cumsum(counts), outside, "right"))
        last = self.bins - 1 - int(np.searchsorted(np.cumsum(counts[::-1]), outside, "right"))
        return (first, last) if first <= last else (0, self.bins - 1)


def _squares(start: np.ndarray | float, end: np.ndarray | float) -> np.ndarray | float:
    """The integral of x² from `start` to `end`."""
    return (end**3 - start**3) / 3


default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
