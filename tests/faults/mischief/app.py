"""Every misdeed as an app. The order of the imports is the order in which they are tried."""

from tests.faults.mischief import ending, looping, forking, changing, overdoing  # noqa: F401, I001
from tests.faults.mischief.groups import DEADLY, HARMFUL, STUBBORN, SURVIVED, app

__all__ = ["DEADLY", "HARMFUL", "STUBBORN", "SURVIVED", "app"]
