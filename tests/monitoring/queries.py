"""Queries of Prometheus, read: which series they ask for, and which labels their answers have."""

from collections.abc import Iterator, Mapping

import promql_parser as promql

_OF_THE_LEFT = {"and", "unless", "or"}


def selectors(expression: promql.Expr) -> Iterator[promql.VectorSelector]:
    """All series that are asked for."""
    if isinstance(expression, promql.VectorSelector):
        yield expression
    elif isinstance(expression, promql.MatrixSelector):
        yield expression.vector_selector
    else:
        for inner in _inner(expression):
            yield from selectors(inner)


def labels_of(expression: promql.Expr, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The labels of the answer, which may be fewer. Raises `KeyError` for series or labels that nobody has."""
    if isinstance(expression, promql.VectorSelector):
        return _of_selector(expression, known)
    if isinstance(expression, promql.MatrixSelector):
        return _of_selector(expression.vector_selector, known)
    if isinstance(expression, promql.AggregateExpr):
        return _of_aggregation(expression, known)
    if isinstance(expression, promql.BinaryExpr):
        return _of_operation(expression, known)
    found = frozenset[str]().union(*(labels_of(inner, known) for inner in _inner(expression)))
    if isinstance(expression, promql.Call):
        if expression.func.name == "histogram_quantile":
            return found - {_has(found, "le")}
        if expression.func.name == "label_replace":
            return found | {expression.args[1].val}
    return found


def _of_selector(selector: promql.VectorSelector, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    labels = known[selector.name or ""]
    for matcher in selector.matchers.matchers:
        _has(labels, matcher.name)
    return labels


def _of_aggregation(expression: promql.AggregateExpr, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found, modifier = labels_of(expression.expr, known), expression.modifier
    if modifier is None:
        return frozenset()
    named = frozenset(_has(found, name) for name in modifier.labels)
    return named if modifier.type == promql.AggModifierType.By else found - named


def _of_operation(expression: promql.BinaryExpr, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    left, right, modifier = labels_of(expression.lhs, known), labels_of(expression.rhs, known), expression.modifier
    if modifier is not None and modifier.matching is not None:
        for name in modifier.matching.labels:
            _has(left & right, name)
    more = frozenset() if modifier is None else frozenset(modifier.group_labels or ())
    return (left or right) | more


def _inner(expression: promql.Expr) -> Iterator[promql.Expr]:
    for name in ("expr", "lhs", "rhs"):
        if (inner := getattr(expression, name, None)) is not None:
            yield inner
    yield from getattr(expression, "args", ())


def _has(labels: frozenset[str], name: str) -> str:
    if name not in labels:
        raise KeyError(f"no label {name} among {sorted(labels)}")
    return name
