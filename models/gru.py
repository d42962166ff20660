"""GRU: the language model of lstm.py with two gates and a single state.

After K. Cho and others, "Learning phrase representations using RNN encoder-decoder for statistical
machine translation", 2014. The update gate interpolates between the old state and a candidate; the
reset gate decides how much of the old state the candidate sees. It has three quarters of an LSTM's
weights.

    python -m models.gru --steps 200 --temperature 0.7 --top-k 5
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop import nn

from .demonstration import parse_options
from .lstm import LEARNING, learn_proverbs


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns proverbs letter by letter and generates some; returns the losses."""
    return learn_proverbs("GRU", nn.GRU, parse_options(__doc__, arguments, **LEARNING))


if __name__ == "__main__":
    main()
