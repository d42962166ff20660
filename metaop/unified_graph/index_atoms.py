"""The atoms of index expressions: axes, runtime symbols, quotients, remainders and lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metaop.unified_graph.interning import InternTable
from metaop.unified_graph.symbolic import is_symbolic, maximum

if TYPE_CHECKING:
    from metaop.unified_graph.index_expr import IndexExpr

# The range of a symbol about which nothing is known.
UNBOUNDED = 1 << 62


class Atom:
    """A term that an affine sum multiplies by a constant; subclasses are interned by content.

    It is plain if no number in it depends on the sizes of a program for any size.
    """

    __slots__ = ("key", "low", "high", "is_plain", "order", "__weakref__")
    _table: InternTable[Atom] = InternTable()
    key: tuple
    low: int
    high: int
    is_plain: bool
    order: tuple[str, str, int] | None

    @classmethod
    def _made(cls, key: tuple, low: int, high: int, **content: Any) -> Any:
        """The atom of a key that the table does not have among its latest."""
        atom = Atom._table.revive(key)
        if atom is None:
            atom = object.__new__(cls)
            atom.key, atom.low, atom.high, atom.order = key, low, high, None
            # Some parts of the key are expressions, and a lookup has several.
            parts = [part for entry in key for part in (entry if type(entry) is tuple else [entry])]
            atom.is_plain = all(getattr(part, "is_plain", not is_symbolic(part)) for part in parts)
            for name, value in content.items():
                setattr(atom, name, value)
            atom = Atom._table.add(key, atom)
        return atom

    def __reduce__(self) -> tuple:
        raise TypeError("index expressions are interned; pickle the program, not its maps")


class Axis(Atom):
    """The index of one axis of the iteration box, `0 <= axis < extent`."""

    __slots__ = ("name", "extent")
    name: int | str
    extent: int

    def __new__(cls, name: int | str, extent: int) -> Axis:
        key = ("axis", name, extent)
        found: Any = Atom._table.get(key)
        return found or cls._made(key, 0, maximum([extent - 1, 0]), name=name, extent=extent)

    def __repr__(self) -> str:
        return f"i{self.name}" if isinstance(self.name, int) else self.name


class Symbol(Atom):
    """An integer that is known only when the kernel runs: a rank offset, a shift."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, low: int = -UNBOUNDED, high: int = UNBOUNDED) -> Symbol:
        key = ("symbol", name, low, high)
        found: Any = Atom._table.get(key)
        return found or cls._made(key, low, high, name=name)

    def __repr__(self) -> str:
        return f"${self.name}"


class Quotient(Atom):
    """`dividend // divisor`, rounded down."""

    __slots__ = ("dividend", "divisor")
    dividend: IndexExpr
    divisor: int

    def __new__(cls, dividend: IndexExpr, divisor: int) -> Quotient:
        key = ("//", dividend, divisor)
        found: Any = Atom._table.get(key)
        low, high = dividend.low // divisor, dividend.high // divisor
        return found or cls._made(key, low, high, dividend=dividend, divisor=divisor)

    def __repr__(self) -> str:
        return f"({self.dividend} // {self.divisor})"


class Remainder(Atom):
    """`dividend % divisor`, never negative."""

    __slots__ = ("dividend", "divisor")
    dividend: IndexExpr
    divisor: int

    def __new__(cls, dividend: IndexExpr, divisor: int) -> Remainder:
        key = ("%", dividend, divisor)
        found: Any = Atom._table.get(key)
        return found or cls._made(key, 0, divisor - 1, dividend=dividend, divisor=divisor)

    def __repr__(self) -> str:
        return f"({self.dividend} % {self.divisor})"


class Lookup(Atom):
    """An element of an index operand: `operand[indices]`, promised to lie in `0 … bound-1`.

    `operand` is the position of the index tensor among the inputs of the node that owns the map.
    Backends check the promise and report the offending value.
    """

    __slots__ = ("operand", "indices", "bound")
    operand: int
    indices: tuple[IndexExpr, ...]
    bound: int

    def __new__(cls, operand: int, indices: tuple[IndexExpr, ...], bound: int) -> Lookup:
        key = ("lookup", operand, indices, bound)
        found: Any = Atom._table.get(key)
        content = {"operand": operand, "indices": indices, "bound": bound}
        return found or cls._made(key, 0, maximum([bound - 1, 0]), **content)

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.indices))
        return f"operand{self.operand}[{inside}]"
