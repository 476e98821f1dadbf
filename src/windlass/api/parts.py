"""What handlers reach: the slices of the store, and the things of this process that outlive a request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.api.together import Together
from windlass.bus.protocol import Shortcuts
from windlass.config import Config
from windlass.model import Status
from windlass.store.protocol import Intake, Views

if TYPE_CHECKING:  # these import the table of endpoints, whose calls carry the parts
    from windlass.api.access import AccessLog
    from windlass.api.catalogue import Catalogue
    from windlass.api.events import Events
    from windlass.api.gate import Gate
    from windlass.api.gathering import Gathering
    from windlass.api.names import Names
    from windlass.api.readiness import Readiness
    from windlass.store.protocol import Accounts


@dataclass(frozen=True, slots=True)
class Parts:
    """`intake` wakes workers for what it stores. `gate` says who calls; `events` feeds the streams; `catalogue` knows
    the declared types, `names` which queues and tags there are; `gathering` stores single submissions that are in
    flight together in one transaction, and `places` finds out together where the jobs are that were there before.
    `shortcuts`: past PostgreSQL, where there are some; `intake` uses them already. `readiness`: whether requests
    should be sent here."""

    config: Config
    intake: Intake
    views: Views
    accounts: "Accounts"
    catalogue: "Catalogue"
    names: "Names"
    gate: "Gate"
    events: "Events"
    gathering: "Gathering"
    places: Together[UUID, Status | None]
    access: "AccessLog"
    shortcuts: Shortcuts
    readiness: "Readiness"
