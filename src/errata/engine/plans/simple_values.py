"""What simple SQL comes to over rows in memory: the same as in Spark, or `NotSimpleError`.

All arguments are worked out for all rows, also those that Spark would not look at. Whatever fails is left to Spark, and
so is what the two do not do alike: numbers that are none, zeros below zero, divisions of decimals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.engine.plans.simple_sql import Node, NotSimpleError

_WIDENING = (pa.int32(), pa.int64(), pa.float64())
"""Numbers from the narrowest on."""
_KINDS = {
    "DOUBLE": pa.float64(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
    "FLOAT": pa.float32(),
}
_EXACT = float(1 << 53)
"""Up to here a double tells whole numbers."""
_LONGEST = float(1 << 62)
_MOST_DIGITS = 38
_FULL = 1e37


def value(node: Node, rows: pa.Table) -> pa.Array:
    """An expression, of each row."""
    match node.kind:
        case "constant":
            return pa.repeat(node.constant, rows.num_rows)
        case "column":
            return _column(node.text, rows)
        case "cast":
            return _converted(value(node.args[0], rows), _kind(node.text))
    if node.kind not in _FUNCTIONS:
        raise NotSimpleError(node.kind)
    return _FUNCTIONS[node.kind]([value(each, rows) for each in node.args])


def _column(name: str, rows: pa.Table) -> pa.Array:
    if rows.column_names.count(name) != 1:
        raise NotSimpleError(name)
    found = rows[name].combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def holds(node: Node, rows: pa.Table) -> pa.Array:
    """Whether a condition is true, of each row."""
    return _true(value(node, rows))


def _true(found: pa.Array) -> pa.Array:
    return pc.fill_null(as_kind(found, pa.bool_()), False)


def as_kind(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as those of a kind that is at least as wide."""
    if found.type == kind:
        return found
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), kind)
    if found.type in _WIDENING and kind in _WIDENING[_WIDENING.index(found.type) :]:
        return found.cast(kind)
    raise NotSimpleError(f"{found.type} as {kind}")


def alike(some: Sequence[pa.Array]) -> list[pa.Array]:
    """Values as such of one kind, the widest among them."""
    kinds = {each.type for each in some if not pa.types.is_null(each.type)}
    if not kinds:
        return list(some)
    widest = next(iter(kinds)) if len(kinds) == 1 else max(kinds, key=_width)
    return [as_kind(each, widest) for each in some]


def _width(kind: pa.DataType) -> int:
    if kind not in _WIDENING:
        raise NotSimpleError(str(kind))
    return _WIDENING.index(kind)


def checked(found: pa.Array) -> pa.Array:
    """Values that are compared as Spark compares them."""
    kind = found.type
    if pa.types.is_floating(kind):
        numbers = found.drop_null().to_numpy()
        if np.isnan(numbers).any() or np.signbit(numbers[numbers == 0]).any():
            raise NotSimpleError("not a number")
    elif pa.types.is_null(kind) or pa.types.is_nested(kind):
        raise NotSimpleError(str(kind))
    return found


def _kind(text: str) -> pa.DataType:
    if text in _KINDS:
        return _KINDS[text]
    name, _, digits = text.rstrip(")").partition("(")
    if name != "DECIMAL" or not digits:
        raise NotSimpleError(text)
    precision, scale = (int(each) for each in digits.split(","))
    return pa.decimal128(precision, scale)


def _converted(found: pa.Array, kind: pa.DataType) -> pa.Array:
    was = found.type
    if was == kind or pa.types.is_null(was) or (was in _WIDENING and kind in _WIDENING[_WIDENING.index(was) :]):
        return as_kind(found, kind)
    if was == pa.float32() and kind == pa.float64():
        return found.cast(kind)
    if pa.types.is_decimal(kind) and (pa.types.is_integer(was) or _is_scaled_alike(was, kind)):
        return found.cast(kind)
    if pa.types.is_decimal(was) and was.scale == 0 and kind in (pa.int64(), pa.float64()):
        whole = found.cast(pa.int64())
        if kind == pa.int64():
            return whole
        if (np.abs(whole.drop_null().to_numpy().astype(np.float64)) < _EXACT).all():
            return whole.cast(kind)
    raise NotSimpleError(f"{was} to {kind}")


def _is_scaled_alike(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(one) and one.scale == other.scale)


# Functions


def _numbers(args: Sequence[pa.Array]) -> list[pa.Array]:
    found = alike(args)
    if found[0].type not in _WIDENING:
        raise NotSimpleError(str(found[0].type))
    return found


def _arithmetic(of: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[[list[pa.Array]], pa.Array]:
    return lambda args: of(*_numbers(args))


def _compared(of: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[[list[pa.Array]], pa.Array]:
    return lambda args: of(*map(checked, alike(args)))


def _divided(args: list[pa.Array]) -> pa.Array:
    left, right = (as_kind(each, pa.float64()) for each in _numbers(args))
    if pc.any(pc.equal(right, 0.0)).as_py():
        raise NotSimpleError("a division by zero")
    return pc.divide(left, right)


def _remainder(args: list[pa.Array]) -> pa.Array:
    left, right = (as_kind(each, pa.int64()) for each in args)
    if left.null_count or right.null_count or pc.any(pc.less_equal(right, 0)).as_py():
        raise NotSimpleError("pmod")
    return pa.array(np.mod(left.to_numpy(), right.to_numpy()), pa.int64())


def _chosen(args: list[pa.Array]) -> pa.Array:
    *results, otherwise = alike([*args[1:-1:2], args[-1]])
    for condition, result in zip(reversed(args[:-1:2]), reversed(results), strict=True):
        otherwise = pc.if_else(_true(condition), result, otherwise)
    return otherwise


def _first_known(args: list[pa.Array]) -> pa.Array:
    return pc.coalesce(*alike(args))


def _unless(args: list[pa.Array]) -> pa.Array:
    left, same = args[0], pc.equal(*map(checked, alike(args)))
    return pc.if_else(pc.fill_null(same, False), pa.nulls(len(left), left.type), left)


def _negative(args: list[pa.Array]) -> pa.Array:
    return (pc.negate if pa.types.is_decimal(args[0].type) else pc.negate_checked)(_signed(args[0]))


def _size(args: list[pa.Array]) -> pa.Array:
    return (pc.abs if pa.types.is_decimal(args[0].type) else pc.abs_checked)(_signed(args[0]))


def _signed(found: pa.Array) -> pa.Array:
    if found.type not in _WIDENING and not pa.types.is_decimal(found.type):
        raise NotSimpleError(str(found.type))
    return found


def _moments(args: list[pa.Array]) -> pa.Array:
    return as_kind(args[0], pa.int64()).cast(pa.timestamp("us", "UTC"))


def _micros(args: list[pa.Array]) -> pa.Array:
    return as_kind(args[0], pa.timestamp("us", "UTC")).cast(pa.int64())


def _truths(args: list[pa.Array]) -> list[pa.Array]:
    return [as_kind(each, pa.bool_()) for each in args]


_FUNCTIONS: dict[str, Callable[[list[pa.Array]], pa.Array]] = {
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    # What overflows is NULL; here it is an error, and Spark's.
    "try_add": _arithmetic(pc.add_checked),
    "try_subtract": _arithmetic(pc.subtract_checked),
    "/": _divided,
    "pmod": _remainder,
    "=": _compared(pc.equal),
    "<>": _compared(pc.not_equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "AND": lambda args: reduce(pc.and_kleene, _truths(args)),
    "OR": lambda args: reduce(pc.or_kleene, _truths(args)),
    "NOT": lambda args: pc.invert(*_truths(args)),
    "is_null": lambda args: pc.is_null(args[0]),
    "case": _chosen,
    "coalesce": _first_known,
    "nullif": _unless,
    "negative": _negative,
    "abs": _size,
    "timestamp_micros": _moments,
    "unix_micros": _micros,
}


# Aggregates


def summand(node: Node, rows: pa.Table) -> tuple[pa.Array, str]:
    """What an aggregate is of, and the function that adds it up; rows that do not count are NULL."""
    condition = None
    if node.kind == "only":
        node, condition = node.args[0], holds(node.args[1], rows)
    if node.kind == "count_if" and len(node.args) == 1:
        found, function = holds(node.args[0], rows).cast(pa.int64()), "sum"
    elif node.kind in _AGGREGATES and len(node.args) == 1:
        found, function = _AGGREGATES[node.kind](value(node.args[0], rows)), node.kind
    else:
        raise NotSimpleError(node.kind)
    return found if condition is None else pc.if_else(condition, found, pa.nulls(len(found), found.type)), function


def _summable(found: pa.Array) -> pa.Array:
    kind, known = found.type, found.drop_null()
    if pa.types.is_integer(kind):
        if np.abs(known.to_numpy().astype(np.float64)).sum() >= _LONGEST:
            raise NotSimpleError("a sum that may overflow")
        return found.cast(pa.int64())
    if pa.types.is_decimal(kind) and kind.precision == _MOST_DIGITS:
        if np.abs(known.cast(pa.float64()).to_numpy()).sum() >= _FULL / 10**kind.scale:
            raise NotSimpleError("a sum that may overflow")
        return found
    if kind == pa.float64():
        return found
    raise NotSimpleError(str(kind))


_AGGREGATES: dict[str, Callable[[pa.Array], pa.Array]] = {"sum": _summable, "min": checked, "max": checked}
