"""Finding the user's apps: `module:attribute`, looked for in the working folder too; several, separated by commas."""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from windlass.config import Config
from windlass.errors import Misconfigured
from windlass.queue_names import serves
from windlass.sealing import NO_KEYS, SEALED_FIELDS, opening, payload_keys
from windlass.store.protocol import Intake, Views
from windlass.worker.hooks import WorkerHook
from windlass.worker.registry import JobType

BUILT_IN: Final = "windlass.jobs:app"
_log: Final = logging.getLogger(__name__)


class Apps:
    """One or more apps that a worker runs as if they were one."""

    def __init__(self, apps: Mapping[str, Any]) -> None:
        self._apps = tuple(apps.values())
        self.types: Mapping[str, JobType] = _merged(apps)
        hooks = [each for app in self._apps if (each := getattr(app, "hooks", None)) is not None]
        for each in hooks:
            each.check(self.types)
        self.worker_starts: list[WorkerHook] = [hook for each in hooks for hook in each.worker_starts]
        self.worker_stops: list[WorkerHook] = [hook for each in hooks for hook in each.worker_stops]

    @property
    def queues(self) -> dict[str, int]:
        """What is served where nobody says: the queues that the types name, all of the same weight."""
        return dict.fromkeys([job.queue for job in self.types.values()], 1) or {"default": 1}

    def unserved(self, queues: Iterable[str]) -> dict[str, list[str]]:
        """By queue: the types whose jobs go to a queue that is not among these."""
        served, found = list(queues), dict[str, list[str]]()
        for name, job in self.types.items():
            if not serves(served, job.queue):
                found.setdefault(job.queue, []).append(name)
        return found

    def use(self, config: Config) -> None:
        for app in self._apps:
            app.use(config)
        keys = payload_keys(config.store.payload_keys) or NO_KEYS
        for name in SEALED_FIELDS:
            if (job := self.types.get(name)) is not None:
                job.arguments = opening(job.signature.arguments, name, keys)

    def attach(self, intake: Intake, views: Views) -> None:
        for app in self._apps:
            app.attach(intake, views)


def load_apps(specs: str) -> Apps:
    """The apps of these names, imported; raises Misconfigured with one line that says what is wrong."""
    return Apps({spec: load_app(spec) for spec in specs_in(specs)})


def specs_in(text: str) -> list[str]:
    """The single names in `a:app,b:app`, each once."""
    return list(dict.fromkeys(spec.strip() for spec in text.split(",") if spec.strip())) or [text]


def check_specs(specs: Iterable[str]) -> None:
    """Refuse what names no app, or a package that is not there, without importing anything: a mistyped name is told before
    a database is made for it. Raises Misconfigured."""
    for spec in specs:
        module_name, _ = _split(spec)
        _look_in_the_working_folder()
        package = module_name.partition(".")[0]
        try:
            found = importlib.util.find_spec(package)
        except (ImportError, ValueError):  # some finder fails on it: to import it will tell why
            continue
        if found is None:
            raise Misconfigured(f"app {spec!r} cannot be imported: ModuleNotFoundError: No module named {package!r}")


def load_app(spec: str) -> Any:
    """The app of that name, imported; raises Misconfigured with one line that says what is wrong."""
    module_name, attribute = _split(spec)
    _look_in_the_working_folder()
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


def _split(spec: str) -> tuple[str, str]:
    """The name of the module, and that of its attribute."""
    module_name, colon, attribute = spec.partition(":")
    if not module_name or not colon or not attribute:
        raise Misconfigured(f"{spec!r} names no app; write module:attribute, such as tasks:app")
    if module_name.endswith(".py"):  # no module of a package may be called so: it is the name of a file
        module = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise Misconfigured(f"{spec!r} names a file; write the module's name: {module}:{attribute}")
    return module_name, attribute


def _look_in_the_working_folder() -> None:
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, os.getcwd())  # noqa: PTH109


def _merged(apps: Mapping[str, Any]) -> Mapping[str, JobType]:
    """Every type of every app. One name, one handler: which of two would run must not hang on the order of options."""
    if len(apps) == 1:
        return next(iter(apps.values())).types  # type: ignore[no-any-return]  # the app's own: it may still grow
    owner: dict[str, str] = {}
    merged: dict[str, JobType] = {}
    for spec, name, job in _built_in_first(apps):
        if merged.get(name) not in {None, job}:
            if owner[name] != BUILT_IN:
                raise Misconfigured(f"both {owner[name]} and {spec} have a job named {name!r}; give one another name=")
            _log.info("%r of %s takes the place of the built-in one", name, spec)
        merged[name], owner[name] = job, spec
    return merged


def _built_in_first(apps: Mapping[str, Any]) -> Iterator[tuple[str, str, JobType]]:
    """The built-in types give way: that we add one must not stop an app that has its own of that name."""
    for spec in sorted(apps, key=lambda spec: spec != BUILT_IN):
        for name, job in apps[spec].types.items():
            yield spec, name, job
