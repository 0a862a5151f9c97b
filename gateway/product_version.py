"""Which version of prefixgate this is: the one that its distribution was installed as, wherever it is shown.

    tag v0.3.0  --(build)-->  prefixgate-0.3.0.dist-info  --(here)-->  `--version`, /health, the API's pages, a metric

A build takes it from the tag of the checkout, so it stands in no file of the project.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Gauge

UNKNOWN: Final = "unknown"
RegistryT = TypeVar("RegistryT", bound=CollectorRegistry)


@cache
def product_version() -> str:
    """As PEP 440 writes it; `UNKNOWN` where the code runs without having been installed. Reads a file, once."""
    try:
        return version("prefixgate")
    except PackageNotFoundError:
        return UNKNOWN


def with_version(registry: RegistryT) -> RegistryT:
    """The registry, with a series that is always 1 and carries the version: it tells replicas of two versions apart."""
    gauge = Gauge(
        "prefixgate_build_info", "Always 1; the label is the version that runs.", ["version"], registry=registry
    )
    gauge.labels(product_version()).set(1)
    return registry
