"""All endpoints there are, area by area, in the order the description of the API has them."""

from windlass.api import (
    accounts,
    actions,
    aliases,
    auth,
    cluster,
    dashboard,
    dead_letters,
    dev_mail,
    jobs,
    pages,
    probes,
    series,
    stream,
    submitters,
    system,
    workers,
)
from windlass.api.endpoint import Endpoint


def table() -> list[Endpoint]:
    return [
        *jobs.endpoints,
        *actions.endpoints,
        *dead_letters.endpoints,
        *cluster.endpoints,
        *workers.endpoints,
        *series.endpoints,
        *system.endpoints,
        *stream.endpoints,
        *auth.endpoints,
        *accounts.endpoints,
        *submitters.endpoints,
        *probes.endpoints,
        *dev_mail.endpoints,
        *pages.endpoints,
        *dashboard.endpoints,
        *aliases.endpoints,
    ]
