"""Finding the user's app: `module:attribute`, looked for in the working folder too."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from windlass.errors import Misconfigured
from windlass.worker.registry import JobType


def load_app(spec: str) -> Any:
    """The app of that name, imported; raises Misconfigured with one line that says what is wrong."""
    module_name, colon, attribute = spec.partition(":")
    if not module_name or not colon or not attribute:
        raise Misconfigured(f"{spec!r} names no app; write module:attribute, such as tasks:app")
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        app = importlib.import_module(module_name)
        for name in attribute.split("."):
            app = getattr(app, name)
    except (Exception, SystemExit) as error:
        raise Misconfigured(f"app {spec!r} cannot be imported: {type(error).__name__}: {error}") from error
    types = getattr(app, "types", None)
    if not isinstance(types, Mapping) or not all(isinstance(each, JobType) for each in types.values()):
        raise Misconfigured(f"{spec!r} is no windlass App, but {type(app).__name__}")
    return app
