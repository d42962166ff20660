"""Every form in which Python's state can change is seen, also what was absent and appears."""

from __future__ import annotations

import builtins
import collections
import contextvars
import enum
import functools
import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import Tensor, jit, nn

# A function of one tensor, and what changes the state that it reads.
Case = tuple[Callable[[Tensor], Tensor], Callable[[], Any]]
CASES: dict[str, Callable[[], Case]] = {}
NAME = "scale"


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    CASES[function.__name__] = function
    return function


def classes() -> tuple[Any, Any]:
    """A class with a class attribute, and one that inherits it."""

    class Base:
        scale = 2.0

        def factor(self) -> float:
            return self.scale

    class Derived(Base):
        pass

    return Base, Derived


@pytest.fixture(autouse=True)
def same_globals_afterwards() -> Iterator[None]:
    before = dict(globals())
    yield
    for name in set(globals()) - set(before):
        del globals()[name]
    globals().update(before)
    for name in ("UNKNOWN", "KNOWN"):
        vars(builtins).pop(name, None)


# --- attributes along the order of inheritance ----------------------------------------------------


@case
def instance_begins_to_shadow_its_class() -> Case:
    value = classes()[0]()
    return lambda x: x * value.scale, lambda: setattr(value, "scale", 3.0)


@case
def instance_begins_to_shadow_inside_a_method() -> Case:
    value = classes()[1]()
    return lambda x: x * value.factor(), lambda: setattr(value, "scale", 3.0)


@case
def instance_stops_shadowing_its_class() -> Case:
    value = classes()[0]()
    value.scale = 5.0
    return lambda x: x * value.scale, lambda: delattr(value, "scale")


@case
def another_attribute_makes_room_for_the_shadow() -> Case:
    value = classes()[0]()
    value.other = 1

    def change() -> None:
        del value.other
        value.scale = 3.0

    return lambda x: x * value.scale, change


@case
def derived_class_begins_to_shadow_its_base() -> Case:
    _, derived = classes()
    value = derived()
    return lambda x: x * value.scale, lambda: setattr(derived, "scale", 3.0)


@case
def base_class_changes() -> Case:
    base, derived = classes()
    value = derived()
    return lambda x: x * value.scale, lambda: setattr(base, "scale", 3.0)


@case
def class_attribute_is_read_from_the_class() -> Case:
    _, derived = classes()
    return lambda x: x * derived.scale, lambda: setattr(derived, "scale", 3.0)


@case
def metaclass_begins_to_have_an_attribute() -> Case:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        pass

    return lambda x: x * getattr(Made, "scale", 2.0), lambda: setattr(Meta, "scale", 3.0)


@case
def object_gets_another_class() -> Case:
    class Other:
        scale = 3.0

    value = classes()[0]()
    return lambda x: x * value.scale, lambda: setattr(value, "__class__", Other)


@case
def class_gets_another_base() -> Case:
    base, derived = classes()
    other = type("Other", (base,), {"scale": 3.0})
    value = derived()
    return lambda x: x * value.scale, lambda: setattr(derived, "__bases__", (other,))


@case
def method_is_replaced_in_the_class() -> Case:
    base, derived = classes()
    value = derived()
    return lambda x: x * value.factor(), lambda: setattr(base, "factor", lambda self: 3.0)


@case
def method_is_shadowed_by_the_instance() -> Case:
    value = classes()[0]()
    return lambda x: x * value.factor(), lambda: setattr(value, "factor", lambda: 3.0)


@case
def property_is_replaced() -> Case:
    class Kind:
        @property
        def scale(self) -> float:
            return 2.0

    value = Kind()
    return lambda x: x * value.scale, lambda: setattr(Kind, "scale", property(lambda _: 3.0))


@case
def property_reads_a_class_attribute_that_is_shadowed() -> Case:
    class Kind(classes()[0]):  # type: ignore[misc]
        @property
        def doubled(self) -> float:
            return 2 * self.scale

    value = Kind()
    return lambda x: x * value.doubled, lambda: setattr(value, "scale", 3.0)


@case
def cached_property_is_cleared() -> Case:
    class Kind(classes()[0]):  # type: ignore[misc]
        @functools.cached_property
        def kept(self) -> float:
            return 2 * self.scale

    value = Kind()

    def change() -> None:
        value.scale = 3.0
        del value.kept

    return lambda x: x * value.kept, change


@case
def slot_is_filled() -> Case:
    class Slotted:
        __slots__ = ("scale",)

    value = Slotted()
    return lambda x: x * getattr(value, "scale", 2.0), lambda: setattr(value, "scale", 3.0)


@case
def slot_of_a_base_class_changes() -> Case:
    class Base:
        __slots__ = ("scale",)

    class Derived(Base):
        __slots__ = ()

    value: Any = Derived()
    value.scale = 2.0
    return lambda x: x * value.scale, lambda: setattr(value, "scale", 3.0)


@case
def private_slot_changes() -> Case:
    class Slotted:
        __slots__ = ("__scale",)

        def __init__(self) -> None:
            self.__scale = 2.0

        def set(self, scale: float) -> None:
            self.__scale = scale

        def factor(self) -> float:
            return self.__scale

    value = Slotted()
    return lambda x: x * value.factor(), lambda: value.set(3.0)


@case
def attribute_appears_for_hasattr() -> Case:
    value = classes()[0]()
    return lambda x: x * (3 if hasattr(value, "flag") else 2), lambda: setattr(value, "flag", 1)


@case
def attribute_appears_for_a_default() -> Case:
    value = classes()[0]()
    return lambda x: x * getattr(value, "flag", 2.0), lambda: setattr(value, "flag", 3.0)


@case
def attribute_appears_for_an_error() -> Case:
    value = classes()[0]()

    def function(x: Tensor) -> Tensor:
        try:
            return x * value.flag
        except AttributeError:
            return x * 2

    return function, lambda: setattr(value, "flag", 3.0)


@case
def attribute_of_a_name_made_at_run_time_appears() -> Case:
    value = classes()[0]()
    name = "".join(["sc", "ale"])
    return lambda x: x * getattr(value, name), lambda: setattr(value, name, 3.0)


@case
def attribute_named_by_a_global_appears() -> Case:
    value = classes()[0]()
    return lambda x: x * getattr(value, NAME), lambda: setattr(value, "scale", 3.0)


@case
def attribute_taken_by_a_getter_changes() -> Case:
    value, getter = classes()[0](), operator.attrgetter("scale")
    return lambda x: x * getter(value), lambda: setattr(value, "scale", 3.0)


@case
def attribute_appears_on_a_tensor() -> Case:
    weight: Any = metaop.ones(3)
    return lambda x: x * getattr(weight, "factor", 2.0), lambda: setattr(weight, "factor", 3.0)


@case
def attribute_appears_on_a_function() -> Case:
    def function(x: Tensor) -> Tensor:
        return x * getattr(function, "factor", 2.0)

    return function, lambda: setattr(function, "factor", 3.0)


@case
def attribute_appears_on_a_module() -> Case:
    module: Any = types.ModuleType("some_settings")
    return lambda x: x * getattr(module, "rate", 2.0), lambda: setattr(module, "rate", 3.0)


@case
def special_method_is_replaced() -> Case:
    class Kind:
        def __len__(self) -> int:
            return 2

    value = Kind()
    return lambda x: x * len(value), lambda: setattr(Kind, "__len__", lambda self: 3)


@case
def special_method_appears() -> Case:
    class Kind:
        pass

    value = Kind()
    return (
        lambda x: x * 2 if value else x * 3,
        lambda: setattr(Kind, "__bool__", lambda self: False),
    )


@case
def missing_attributes_begin_to_be_made() -> Case:
    class Kind:
        pass

    value: Any = Kind()
    return (
        lambda x: x * getattr(value, "scale", 2.0),
        lambda: setattr(Kind, "__getattr__", lambda self, name: 3.0),
    )


@case
def attribute_of_a_namespace() -> Case:
    value = types.SimpleNamespace()
    return lambda x: x * getattr(value, "rate", 2.0), lambda: setattr(value, "rate", 3.0)


@case
def attribute_appears_on_a_layer_of_metaop() -> Case:
    layer: Any = nn.Linear(3, 3)
    return lambda x: x * getattr(layer, "factor", 2.0), lambda: setattr(layer, "factor", 3.0)


@case
def member_of_an_enumeration() -> Case:
    class Mode(enum.Enum):
        FIRST = 2.0
        SECOND = 3.0

    class Kind:
        mode = Mode.FIRST

    value = Kind()
    return lambda x: x * value.mode.value, lambda: setattr(value, "mode", Mode.SECOND)


# --- names ----------------------------------------------------------------------------------------


@case
def global_shadows_a_builtin() -> Case:
    return (
        lambda x: x * abs(-2),
        lambda: globals().update(abs=lambda value: 3),
    )


@case
def builtin_is_replaced() -> Case:
    vars(builtins)["KNOWN"] = 2.0
    return lambda x: x * KNOWN, lambda: vars(builtins).update(KNOWN=3.0)  # type: ignore  # noqa: F821


@case
def global_appears() -> Case:
    def function(x: Tensor) -> Tensor:
        try:
            return x * UNKNOWN  # type: ignore[name-defined]
        except NameError:
            return x * 2

    return function, lambda: globals().update(UNKNOWN=3.0)


@case
def global_looked_up_in_the_dictionary_appears() -> Case:
    return (
        lambda x: x * globals().get("UNKNOWN", 2.0),
        lambda: globals().update(UNKNOWN=3.0),
    )


@case
def closure_is_filled() -> Case:
    def function(x: Tensor) -> Tensor:
        try:
            return x * later
        except NameError:
            return x * 2

    def change() -> None:
        nonlocal later
        later = 3.0

    if "never" in CASES:
        later = 0.0
    return function, change


@case
def closure_of_a_decorated_function() -> Case:
    factor = 2.0

    def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any) -> Any:
            return 2 * function(*args)

        return wrapped

    @doubled
    def inner(x: Tensor) -> Tensor:
        return x * factor

    def change() -> None:
        nonlocal factor
        factor = 3.0

    return lambda x: inner(x), change


@case
def closure_of_a_cached_property() -> Case:
    factor = 2.0

    class Kind:
        scale = functools.cached_property(lambda self: factor)

    def change() -> None:
        nonlocal factor
        factor = 3.0

    return lambda x: x * Kind().scale, change


@case
def closure_of_a_hook() -> Case:
    factor = 2.0
    layer = nn.Tanh()
    layer.register_forward_hook(lambda module, inputs, output: output * factor)

    def change() -> None:
        nonlocal factor
        factor = 3.0

    return lambda x: layer(x), change


@case
def closure_of_a_layer_that_calls_a_function() -> Case:
    factor = 2.0
    layer = nn.TransformerEncoderLayer(4, 2, 4, 0.0, activation=lambda x: x * factor)

    def change() -> None:
        nonlocal factor
        factor = 30.0

    x = metaop.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    return lambda _: layer(x).detach(), change


@case
def default_argument_is_replaced() -> Case:
    def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    return lambda x: scaled(x), lambda: setattr(scaled, "__defaults__", (3.0,))


@case
def default_keyword_is_replaced() -> Case:
    def scaled(x: Tensor, *, factor: float = 2.0) -> Tensor:
        return x * factor

    return lambda x: scaled(x), lambda: setattr(scaled, "__kwdefaults__", {"factor": 3.0})


@case
def default_keyword_is_changed_in_place() -> Case:
    def scaled(x: Tensor, *, factor: float = 2.0) -> Tensor:
        return x * factor

    table: Any = scaled.__kwdefaults__
    return lambda x: scaled(x), lambda: table.update(factor=3.0)


@case
def default_list_grows() -> Case:
    factors = [2.0]

    def scaled(x: Tensor, factors: list[float] = factors) -> Tensor:
        return x * sum(factors)

    return lambda x: scaled(x), lambda: factors.append(3.0)


@case
def code_is_replaced() -> Case:
    def scaled(x: Tensor) -> Tensor:
        return x * 2

    return (
        lambda x: scaled(x),
        lambda: setattr(scaled, "__code__", (lambda x: x * 3).__code__),
    )


# --- contents -------------------------------------------------------------------------------------


@case
def item_of_a_nested_list() -> Case:
    table = {"a": [1.0, [2.0]]}
    return lambda x: x * table["a"][1][0], lambda: table["a"][1].__setitem__(0, 3.0)  # type: ignore


@case
def key_appears() -> Case:
    table: dict[str, float] = {}
    return lambda x: x * table.get("rate", 2.0), lambda: table.update(rate=3.0)


@case
def key_is_asked_for() -> Case:
    table: dict[str, float] = {}
    return lambda x: x * (3 if "rate" in table else 2), lambda: table.update(rate=3.0)


@case
def order_of_keys() -> Case:
    table = {"a": 2.0, "b": 3.0}
    return (
        lambda x: x * next(iter(table.values())),
        lambda: table.update(a=table.pop("a")),
    )


@case
def set_grows() -> Case:
    names: set[str] = set()
    return lambda x: x * (3 if "rate" in names else 2), lambda: names.add("rate")


@case
def mapping_behind_a_proxy() -> Case:
    table = {"rate": 2.0}
    proxy = types.MappingProxyType(table)
    return lambda x: x * proxy["rate"], lambda: table.update(rate=3.0)


@case
def user_dictionary() -> Case:
    table: collections.UserDict[str, float] = collections.UserDict(rate=2.0)
    return lambda x: x * table["rate"], lambda: table.update(rate=3.0)


@case
def chain_of_dictionaries() -> Case:
    table: collections.ChainMap[str, float] = collections.ChainMap({}, {"rate": 2.0})
    return lambda x: x * table["rate"], lambda: table.update(rate=3.0)


@case
def attribute_of_a_list() -> Case:
    class Factors(list[float]):
        scale = 2.0

    factors = Factors([1.0])
    return lambda x: x * factors[0] * factors.scale, lambda: setattr(factors, "scale", 3.0)


@case
def shape_of_an_array() -> Case:
    array = np.ones((2, 3), np.float32)
    return lambda x: x * array.shape[0], lambda: setattr(array, "shape", (3, 2))


@case
def bytes_that_change() -> Case:
    data = bytearray(b"\x02")
    return lambda x: x * data[0], lambda: data.__setitem__(0, 3)


@case
def context_variable() -> Case:
    rate: contextvars.ContextVar[float] = contextvars.ContextVar("rate", default=2.0)
    return lambda x: x * rate.get(), lambda: rate.set(3.0)


@case
def object_behind_a_weak_reference() -> Case:
    value = classes()[0]()
    value.scale = 2.0
    reference = weakref.ref(value)
    return lambda x: x * reference().scale, lambda: setattr(value, "scale", 3.0)  # type: ignore


@case
def sign_of_zero() -> Case:
    value = classes()[0]()
    value.scale = 0.0
    return lambda x: 1 / (x * value.scale), lambda: setattr(value, "scale", -0.0)


@case
def part_of_a_partial() -> Case:
    factors = [2.0]
    scaled = functools.partial(lambda factors, x: x * factors[0], factors)
    return lambda x: scaled(x), lambda: factors.__setitem__(0, 3.0)


@pytest.mark.parametrize("name", CASES)
def test_changed_form_is_seen(name: str) -> None:
    function, change = CASES[name]()
    captured = jit(function)
    x = metaop.tensor([1.0, 2.0, 3.0])
    before = function(x)
    for _ in range(4):
        np.testing.assert_allclose(captured(x).numpy(), before.numpy(), rtol=1e-5)
    assert captured.traces == 2
    change()
    after = function(x).numpy()
    for _ in range(3):
        np.testing.assert_allclose(captured(x).numpy(), after, rtol=1e-5)
    assert not np.allclose(after, before.numpy())


def test_what_the_function_does_not_name_may_appear() -> None:
    value = classes()[0]()
    captured = jit(lambda x: x * value.scale)
    for k in range(6):
        setattr(value, f"other{k}", k)
        globals()[f"other{k}"] = k
        assert captured(metaop.ones(1)).tolist() == [2.0]
    assert captured.traces == 2


def test_attributes_that_appear_on_arguments_are_seen() -> None:
    captured = jit(lambda x: x * getattr(x, "factor", 2.0))
    x: Any = metaop.ones(1)
    for _ in range(3):
        assert captured(x).tolist() == [2.0]
    x.factor = 3.0
    assert captured(x).tolist() == [3.0]


def test_zeros_of_another_sign_are_other_arguments() -> None:
    captured = jit(lambda x, factor: 1 / (x * factor))
    for factor in (0.0, 0.0, 0.0, -0.0, -0.0, 0.0):
        expected = -np.inf if np.signbit(factor) else np.inf
        assert captured(metaop.ones(1), factor).tolist() == [expected]
