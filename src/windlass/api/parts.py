"""What handlers reach: the slices of the store, and the things of this process that outlive a request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.config import Config
from windlass.store.protocol import Intake, Views

if TYPE_CHECKING:  # these import the table of endpoints, whose calls carry the parts
    from windlass.api.access import AccessLog
    from windlass.api.catalogue import Catalogue
    from windlass.api.events import Events
    from windlass.api.gate import Gate
    from windlass.api.gathering import Gathering
    from windlass.store.protocol import Accounts


@dataclass(frozen=True, slots=True)
class Parts:
    """`intake` wakes workers for what it stores. `gate` says who calls; `events` feeds the streams; `catalogue` knows the
    declared types; `gathering` stores single submissions that are in flight together in one transaction."""

    config: Config
    intake: Intake
    views: Views
    accounts: "Accounts"
    catalogue: "Catalogue"
    gate: "Gate"
    events: "Events"
    gathering: "Gathering"
    access: "AccessLog"
