"""Which version of Windlass this is."""


def installed_version() -> str | None:
    """As it is installed now, which after an upgrade is not what a process of long ago has loaded. None: it was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 40 ms, and most processes do without

    try:
        return version("windlass")
    except PackageNotFoundError:  # run from a folder
        return None
