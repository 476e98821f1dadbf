"""An app that takes for ever to import."""

import time

time.sleep(1e6)
