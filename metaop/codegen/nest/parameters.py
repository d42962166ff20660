"""The integers of a loop nest by purpose, and which of them become arguments."""

from __future__ import annotations

from collections import Counter

# From this many reads of one buffer in the text on, they are neighbours: an unrolled window or
# transform.
_NEIGHBOURS = 4


class Parameters:
    """The integers of a nest in order, and the positions of each kind."""

    def __init__(self) -> None:
        self.integers: list[int] = []
        self.windows: set[int] = set()
        self.tasks: set[int] = set()  # extents of parallel loops
        self.outer: set[int] = set()  # extents of loops around others
        self.tiles: set[int] = set()  # extents of short vector loops
        self.constants: set[int] = set()  # of sums
        self.bounds: set[int] = set()  # of conditions
        self.strides: set[int] = set()  # coefficients and divisors
        self.divided_strides: set[int] = set()  # those in, of and around quotients and conditions
        self.places: set[int] = set()  # the same, and constants, in scratch memory
        self.numbers: set[int] = set()  # bits of real numbers, and large whole ones
        self.reads: Counter[int] = Counter()  # of each buffer
        self.shifted = False  # some load has conditions or a constant offset
        self.reduces = False  # some loop carries an accumulator
        self.divided = False  # there are quotients or remainders
        self.tiled = False  # there is a register tile
        self.windowed = False  # there are neighbours in scratch memory
        self.literal = False  # lanes have known places

    def general(self) -> frozenset[int]:
        """The positions that are arguments even in the first kernel of a family.

        The extents of parallel loops and of loops around other loops are arguments everywhere: they
        cost nothing, and a changed batch size finds its kernel. Maps gain nothing from other
        literal sizes, and nests that read under conditions or at constant offsets come from
        padding, slicing, shifting and windows, of which programs use many sizes: there, everything
        is an argument, strides included because they follow from the sizes; only small serial loops
        stay literal. Where quotients and remainders need literal divisors to be fast, at least the
        offsets and bounds are arguments. Around register tiles, whose blocks follow from the sizes,
        all but some strides and constant offsets are.
        """
        every = frozenset(range(len(self.integers))) - self.numbers
        if self.tiled:
            fixed = self.special() | self.constants | (self.windows - self.outer)
            return every - fixed
        if self.windowed or self.literal:
            return frozenset(self.tasks)
        around = self.tasks | self.outer - self.windows
        if self.reduces and not self.shifted:
            return frozenset(self.numbers | around)
        if self.divided:
            return frozenset(self.constants | self.bounds | around)
        return every - self.windows

    def formal(self) -> frozenset[int]:
        """The positions of integers that decide how a kernel is printed.

        The addresses of neighbours do not: LLVM makes the same of literals that it gets later.
        """
        if self.tiled:
            form = self.tiles | self.divided_strides
        else:
            form = set() if self.windowed and not self.literal else set(self.special())
        return frozenset(form | self.windows - self.outer)

    def special(self) -> frozenset[int]:
        """The positions of integers that are worth a specialised kernel.

        Neighbours are read many times, so their addresses should be literal. Otherwise strides
        around register tiles are as fast as arguments, unless lanes are divided: literal strides
        and divisors show which lanes are contiguous.
        """
        if self.literal:
            return frozenset(range(len(self.integers))) - self.tasks
        neighbours = self.places if self.windowed else set()
        if self.tiled:
            most = max((n for buffer, n in self.reads.items() if buffer >= 0), default=0)
            strides = self.divided_strides if most < _NEIGHBOURS else self.strides
            return frozenset(strides | self.tiles | neighbours)
        if self.windowed:
            return frozenset(self.places)
        return frozenset(self.strides) if self.divided else frozenset()
