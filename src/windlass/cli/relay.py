"""The output of a process of `windlass up` where everything is to be JSON: lines that are JSON pass, all others are wrapped.

Most lines are log lines. The others are what handlers print, what programs they start write, and what an interpreter
says that crashes: nobody in that process can make it JSON.
"""

import asyncio
import contextlib
import logging
import os
from typing import Final

import msgspec

from windlass.telemetry import LineHandler
from windlass.worker.loops import cancelled

_LINE_BYTES_MAX: Final = 4 * 1_048_576
_LAST_S: Final = 1.0


class Relay:
    """`fd` is for the process to write to; close it here once the process has it."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._read_fd, self.fd = os.pipe()
        self._pumping = asyncio.create_task(self._pump())

    def close_fd(self) -> None:
        os.close(self.fd)

    async def aclose(self) -> None:
        """Wait for what was written last. A process that outlives the one we started may hold the pipe open."""
        await asyncio.wait([self._pumping], timeout=_LAST_S)
        await cancelled(self._pumping)

    async def _pump(self) -> None:
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        pipe = os.fdopen(self._read_fd, "rb", 0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        try:
            while True:
                with contextlib.suppress(ValueError):  # longer than any line: the rest of it follows
                    line = await reader.readline()
                    if not line:
                        return
                    self._write(line.rstrip(b"\r\n"))
        finally:
            transport.close()

    def _write(self, line: bytes) -> None:
        handler = next(each for each in logging.getLogger().handlers if isinstance(each, LineHandler))
        text = line.decode(errors="replace")
        if is_json_object(line):
            handler.write_lines([text])
        elif text.strip():
            fields = {"name": "windlass.output", "levelno": logging.INFO, "levelname": "INFO", "msg": text}
            handler.handle(logging.makeLogRecord(fields | {"source": self._process}))


def is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
