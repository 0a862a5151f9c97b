"""Queries as text: series of the namespace that a reader has chosen, their rates, sums and shares. Pure."""

from typing import Final

HERE: Final = 'namespace=~"$namespace"'


def rate(metric: str, **labels: str) -> str:
    """A counter's rate, of the namespace that was chosen."""
    return f"rate({of(metric, **labels)}[$__rate_interval])"


def of(metric: str, **labels: str) -> str:
    """A metric of the namespace that was chosen, with these labels: `~a|b` is any that matches."""
    asked = [
        f'{name}=~"{value[1:]}"' if value.startswith("~") else f'{name}="{value}"' for name, value in labels.items()
    ]
    return f"{metric}{{{','.join([HERE, *asked])}}}"


def by(labels: str, expr: str) -> str:
    """Added up by labels."""
    return f"sum by ({labels}) ({expr})"


def total(metric: str, **labels: str) -> str:
    """A counter's rate over everything."""
    return f"sum({rate(metric, **labels)})"


def ratio(labels: str, part: str, whole: str) -> str:
    """Of two rates, by labels."""
    return f"{by(labels, part)} / {by(labels, whole)}"


def quantile(share: float, metric: str, labels: str = "", **asked: str) -> str:
    """Of a histogram, by further labels."""
    return f"histogram_quantile({share}, {by(f'{labels}, le' if labels else 'le', rate(f'{metric}_bucket', **asked))})"
