"""What is between an operator and its API server: watches come late, calls are lost on the way there or on the way back."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum, auto

import aiohttp
from aiohttp import web

CHANGES = ("POST", "PATCH", "DELETE")
_HEADERS = ("Authorization", "Content-Type", "Accept")


class Fate(Enum):
    """What becomes of a call."""

    ANSWERED = auto()
    LOST = auto()  # it never reaches the API server
    SWALLOWED = auto()  # it does, but its answer is lost


class FaultyProxy:
    """A proxy in front of an API server; `async with` starts and stops it.

    Args:
        upstream: address of the API server.
        server_tls: with which it answers itself; None: plain HTTP.
    """

    def __init__(self, upstream: str, server_tls: ssl.SSLContext | None = None) -> None:
        self._upstream, self._server_tls = upstream, server_tls
        self.judge: Callable[[str, str], Fate] = lambda method, path: Fate.ANSWERED
        self.calls: list[tuple[str, str]] = []  # all but watches
        self.watches_pass = asyncio.Event()  # while it is not set, what watches say is held back
        self.watches_pass.set()
        self.delay: Callable[[], float] = lambda: 0.0  # seconds by which a line of a watch comes late
        self.url, self.port = "", 0

    def release_watches(self) -> None:
        """Let watches pass again; from any thread."""
        self._loop.call_soon_threadsafe(self.watches_pass.set)

    def disturb(self, seed: int) -> None:
        """From now on lose one in five changes, half of them on the way back, one in twenty reads, and be up to a second late."""
        chance = random.Random(seed)
        fates = [Fate.ANSWERED] * 8 + [Fate.LOST, Fate.SWALLOWED]

        def judge(method: str, path: str) -> Fate:
            if method in CHANGES:
                return chance.choice(fates)
            return Fate.LOST if chance.random() < 0.05 else Fate.ANSWERED

        self.judge, self.delay = judge, chance.random

    async def __aenter__(self) -> FaultyProxy:
        self._loop = asyncio.get_running_loop()
        tls = False if self._upstream.startswith("https") else None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._server_tls)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._server_tls else ''}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.watches_pass.set()
        await self._session.close()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        fate = Fate.ANSWERED
        if not is_watch:
            self.calls.append((request.method, request.path))
            fate = self.judge(request.method, request.path)
        if fate is Fate.LOST:
            return _broken(request)
        headers = {name: ", ".join(request.headers.getall(name)) for name in _HEADERS if name in request.headers}
        call = self._session.request(
            request.method, self._upstream + request.path_qs, data=await request.read() or None, headers=headers
        )
        async with call as answer:
            if is_watch and answer.status == 200:
                return await self._passed_on(request, answer)
            body = await answer.read()
            if fate is Fate.SWALLOWED:
                return _broken(request)
            kind = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            return web.Response(body=body, status=answer.status, headers=kind)

    async def _passed_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """A watch, line by line; each comes late by itself, so that many at once are not later than one."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        lines: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        now = self._loop.time

        async def read() -> None:
            try:
                while line := await answer.content.readline():
                    lines.put_nowait((now() + self.delay(), line))
            finally:
                lines.put_nowait((now(), b""))

        reader = asyncio.create_task(read())
        try:
            while (entry := await lines.get())[1]:
                await self.watches_pass.wait()
                await asyncio.sleep(entry[0] - now())
                await response.write(entry[1])
        finally:
            reader.cancel()
        return response


@contextmanager
def running_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A proxy that serves from a thread of its own."""
    proxy, started, stop = FaultyProxy(upstream), Future[asyncio.AbstractEventLoop](), asyncio.Event()

    async def serve() -> None:
        async with proxy:
            started.set_result(asyncio.get_running_loop())
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop = started.result(30)
    try:
        yield proxy
    finally:
        proxy.release_watches()
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _broken(request: web.Request) -> web.Response:
    """The connection ends without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
