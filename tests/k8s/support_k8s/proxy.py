"""What is between an operator and its API server: watches come late, calls are lost on the way there or on the way back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from enum import Enum, auto

import aiohttp
from aiohttp import web

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
        self.url, self.port = "", 0

    def release_watches(self) -> None:
        """Let watches pass again; from any thread."""
        self._loop.call_soon_threadsafe(self.watches_pass.set)

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
        """A watch, line by line."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while line := await answer.content.readline():
            await self.watches_pass.wait()
            await response.write(line)
        return response


def _broken(request: web.Request) -> web.Response:
    """The connection ends without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
