"""The dashboards of Grafana in deploy/grafana/dashboards: `make docs` writes them from the tables of this package.

Each module is a dashboard: rows of panels with their queries. `layout` makes Grafana's JSON from them.
"""

from tests.testkit.docs.dashboards import groups, internals, overview, storage, topics
from tests.testkit.docs.dashboards.layout import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    overview.DASHBOARD,
    topics.DASHBOARD,
    groups.DASHBOARD,
    storage.DASHBOARD,
    internals.DASHBOARD,
)
