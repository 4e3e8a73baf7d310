"""A TCP proxy that can be told to misbehave while it runs, for machines on which no link can be broken.

    python -m rca.replay_trainer.proxy 127.0.0.1:0 127.0.0.1:29500 --control FILE

It prints `listening on HOST:PORT`, and obeys the one line in FILE, whenever that changes:

    pass        forward                       refuse      close the listening socket; open connections go on
    delay MS    forward each piece later      drop        swallow what is sent, keep the connections: a partition
    stall       accept, forward nothing yet   cut N       forward N bytes of each further response, then close in order (FIN)
    reset       RST, for old and new          rate N      forward N bytes a second in each direction of each connection

What a stall held back is forwarded when it ends; what was dropped is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from rca.errors import RcaError, did_you_mean

COMMANDS = {"pass": False, "delay": True, "stall": False, "reset": False, "refuse": False, "drop": False, "cut": True, "rate": True}  # whether a number follows
POLL_S = 0.02
CHUNK = 1 << 16
NO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST: socket(7)
SLICES = 20  # pieces a second at a low rate, so that it is slow and not jerky
HELD = 1 << 20  # bytes on their way; more than that, and the sender has to wait


class Mode(NamedTuple):
    word: str = "pass"
    number: int = 0


def parse(text: str) -> Mode:
    """A line of the control file. Raises RcaError.

    >>> parse("delay 200"), parse("stall")
    (Mode(word='delay', number=200), Mode(word='stall', number=0))
    """
    word, *rest = text.split() or ["pass"]
    if word not in COMMANDS:
        raise RcaError(f"no such command: `{word}`", hint=did_you_mean(word, COMMANDS))
    if len(rest) != COMMANDS[word] or (rest and not (rest[0].isascii() and rest[0].isdigit())):
        raise RcaError(f"`{word}` takes {'one number' if COMMANDS[word] else 'nothing'}: `{text.strip()}`")
    return Mode(word, int(rest[0]) if rest else 0)


def tell(control: Path, command: str) -> None:
    """Write a command whole: a proxy never reads half of one. Raises RcaError for what is none."""
    parse(command)
    aside = control.with_name(control.name + ".new")
    aside.write_text(command + "\n")
    os.replace(aside, control)


class Connection:
    """One client and its connection to the target; `answered` counts the bytes of the response that is on its way."""

    def __init__(self, client: asyncio.StreamWriter, target: asyncio.StreamWriter) -> None:
        self.client, self.target, self.answered = client, target, 0

    def reset(self) -> None:
        for writer in (self.client, self.target):
            _reset(writer)

    def close(self) -> None:
        for writer in (self.client, self.target):
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


class Proxy:
    def __init__(self, listen: tuple[str, int], target: tuple[str, int], control: Path) -> None:
        self.listen, self.target, self.control = listen, target, control
        self.mode, self.changed = Mode(), asyncio.Event()
        self.connections: set[Connection] = set()
        self.server: asyncio.Server | None = None

    async def serve(self) -> None:
        """Runs until cancelled."""
        await self._open()
        print("listening on {}:{}".format(*self.listen), flush=True)
        said = ""
        while True:
            with contextlib.suppress(OSError):
                text = self.control.read_text("utf-8", "replace")
                if text != said:
                    said = text
                    await self._obey(text)
            await asyncio.sleep(POLL_S)

    async def _open(self) -> None:
        self.server = await asyncio.start_server(self._accept, *self.listen, limit=CHUNK)
        self.listen = self.server.sockets[0].getsockname()[:2]  # the port that 0 stood for stays ours

    async def _obey(self, text: str) -> None:
        try:
            mode = parse(text)
        except RcaError as error:
            print(error, file=sys.stderr, flush=True)
            return
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()
        for connection in self.connections:
            connection.answered = 0
            if mode.word == "reset":
                connection.reset()
        if mode.word == "refuse" and self.server:
            self.server.close()
            self.server = None
        elif mode.word != "refuse" and not self.server:
            await self._open()
        print(f"mode {mode.word} {mode.number or ''}".rstrip(), flush=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode.word == "reset":
            _reset(writer)
            return
        try:
            back, target = await asyncio.open_connection(*self.target, limit=CHUNK)
        except OSError:
            _reset(writer)
            return
        connection = Connection(writer, target)
        self.connections.add(connection)
        try:
            await asyncio.gather(self._pump(reader, target, connection, False), self._pump(back, writer, connection, True))
        except OSError:
            connection.reset()  # one side was reset: so is the other
        finally:
            self.connections.discard(connection)
            connection.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: Connection, is_response: bool) -> None:
        """Forward one direction until it ends; pieces are delivered by a task of their own, so that a delay delays and does not throttle."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD // CHUNK)
        clock = asyncio.get_running_loop().time

        async def read() -> None:
            while True:
                data = await source.read(CHUNK)
                await pieces.put((clock() + (self.mode.number / 1000 if self.mode.word == "delay" else 0), data))
                if not data:
                    return

        async def write() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(due - clock())
                while self.mode.word == "stall":
                    await self.changed.wait()
                if self.mode.word == "drop":
                    if not data:  # the end of a stream does not come through a partition either
                        await self.changed.wait()
                        return
                    continue
                if not data:
                    if sink.can_write_eof():
                        sink.write_eof()
                    return
                await self._deliver(data, sink, connection, is_response)

        reading = asyncio.ensure_future(read())
        try:
            await write()
        finally:
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    async def _deliver(self, data: bytes, sink: asyncio.StreamWriter, connection: Connection, is_response: bool) -> None:
        if not is_response:
            connection.answered = 0
        elif self.mode.word == "cut":
            left = self.mode.number - connection.answered
            connection.answered += len(data)
            if len(data) >= left:
                sink.write(data[: max(left, 0)])
                await sink.drain()
                connection.close()
                return
        step = max(self.mode.number // SLICES, 1) if self.mode.word == "rate" else len(data)
        for start in range(0, len(data), step):
            part = data[start : start + step]
            sink.write(part)
            await sink.drain()
            if self.mode.word == "rate" and self.mode.number:
                await asyncio.sleep(len(part) / self.mode.number)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"HOST:PORT is wanted: {text}")
    return host.strip("[]"), int(port)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rca.replay_trainer.proxy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("listen", type=_address, metavar="LISTEN", help="HOST:PORT; port 0 takes a free one")
    parser.add_argument("target", type=_address, metavar="TARGET", help="HOST:PORT")
    parser.add_argument("--control", type=Path, required=True, metavar="FILE")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Proxy(given.listen, given.target, given.control).serve())


if __name__ == "__main__":
    main()
