"""Metrics pages, in the text form that Prometheus reads."""

from collections.abc import Iterable, Mapping

Labels = Mapping[str, str]


def metric(name: str, kind: str, samples: Iterable[tuple[Labels, float]], suffix: str = "") -> str:
    """One metric with its series."""
    lines = [f"# HELP {name}{suffix} {name}", f"# TYPE {name}{suffix} {kind}"]
    lines += [f"{name}{suffix}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def gauge(name: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """What goes up and down."""
    return metric(name, "gauge", samples)


def counter(name: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """What only grows; `_total` is added."""
    return metric(name, "counter", samples, "_total")


def histogram(name: str, samples: Iterable[tuple[Labels, float, int]]) -> str:
    """Sum and count, and the one bucket that every histogram has."""
    lines = [f"# HELP {name} {name}", f"# TYPE {name} histogram"]
    for labels, total, count in samples:
        lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {_number(count)}")
        lines.append(f"{name}_count{_labels(labels)} {_number(count)}")
        lines.append(f"{name}_sum{_labels(labels)} {_number(total)}")
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{inner}}}"


def _number(value: float) -> str:
    return repr(float(value))
