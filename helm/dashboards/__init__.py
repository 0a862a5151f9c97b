"""The Grafana dashboards of the chart, written as Python: `python -m helm.dashboards` makes their JSON anew."""
