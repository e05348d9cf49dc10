"""A process between clients and a server that cuts connections or lets them hang, when told to."""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.connection import Connection

_CHUNK_LEN_BYTES = 1 << 14


class Proxy:
    """Passes bytes from ``port`` on to another one."""

    def __init__(self, upstream: int) -> None:
        context = multiprocessing.get_context("fork")
        self._commands, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, upstream), daemon=True)
        self._process.start()
        self.port: int = self._commands.recv()

    def cut(self, seconds: float) -> None:
        """Resets all connections, and every new one for a while."""
        self._commands.send(("cut", seconds))

    def stall(self, seconds: float) -> None:
        """Lets nothing through for a while, and then goes on as if nothing had been."""
        self._commands.send(("stall", seconds))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


def _main(commands: Connection, upstream: int) -> None:
    asyncio.run(_Link(upstream).serve(commands))


class _Link:
    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.writers: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.flows = asyncio.Event()
        self.flows.set()

    async def serve(self, commands: Connection) -> None:
        server = await asyncio.start_server(self.meet, "127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        loop.add_reader(commands.fileno(), lambda: self.obey(loop, *commands.recv()))
        commands.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    def obey(self, loop: asyncio.AbstractEventLoop, command: str, seconds: float) -> None:
        if command == "cut":
            self.is_cut = True
            for writer in self.writers:
                writer.transport.abort()
        else:
            self.flows.clear()
        loop.call_later(seconds, self.heal)

    def heal(self) -> None:
        self.is_cut = False
        self.flows.set()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self.writers |= {writer, far_writer}
        await asyncio.gather(self.pump(reader, far_writer), self.pump(far_reader, writer))
        self.writers -= {writer, far_writer}

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(_CHUNK_LEN_BYTES):
                await self.flows.wait()
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
