"""`python -m helm.dashboards`: writes the dashboards into the chart."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from helm.dashboards.billing import BILLING
from helm.dashboards.cache import CACHE_AND_ROUTING
from helm.dashboards.fleet import FLEET
from helm.dashboards.grafana import Dashboard, document
from helm.dashboards.health import HEALTH
from helm.dashboards.overview import OVERVIEW

FOLDER: Final = Path(__file__).parents[1] / "prefixgate" / "files" / "dashboards"
DASHBOARDS: Final[Mapping[str, Dashboard]] = {
    "overview.json": OVERVIEW,
    "cache.json": CACHE_AND_ROUTING,
    "fleet.json": FLEET,
    "billing.json": BILLING,
    "gateway.json": HEALTH,
}


def text_of(dashboard: Dashboard) -> str:
    """What stands in its file."""
    return json.dumps(document(dashboard), indent=1) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / name).write_text(text_of(dashboard))


if __name__ == "__main__":
    main()
