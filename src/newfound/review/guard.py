"""Who may ask, how much and how often: what stands before the server, and trusts nobody.

A page of another site, or one whose name was made to lead here (DNS rebinding), is told by its Host and Origin. Whoever
has not the token, which is in the address that the command opens, gets nothing of the run.
"""

import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

Scope = Mapping[str, Any]
Message = dict[str, Any]

LARGEST = 8 * 2**20
"""Bytes of a request's body: the rows of a million images in one edit."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
"""What every answer says: the browser itself refuses requests to elsewhere, and scripts that are not ours. Styles may
stand in elements, for plotly's do."""


class Rate:
    """At most so many in a second, and so many at once (a token bucket)."""

    def __init__(self, each_second: float, at_once: float, clock: Callable[[], float] = time.monotonic):
        self.each_second, self.at_once, self._clock = each_second, at_once, clock
        self._left, self._then = at_once, clock()

    def allow(self) -> bool:
        """Whether one more may pass now."""
        now = self._clock()
        self._left = min(self.at_once, self._left + (now - self._then) * self.each_second)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Guard:
    """An ASGI application before another: refuses, or lets pass and adds `HEADERS`."""

    def __init__(
        self,
        app: Any,
        token: str,
        hosts: frozenset[str],
        reads: Rate | None = None,
        edits: Rate | None = None,
        strangers: Rate | None = None,
    ):
        """`hosts` are names with the port that the server may be called by."""
        self.app, self.token, self.hosts = app, token, hosts
        self.reads = reads or Rate(1000, 4000)
        self.edits = edits or Rate(50, 250)
        self.strangers = strangers or Rate(5, 50)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        refused = self.refuse(scope)
        if refused is not None:
            await answer(send, *refused)
            return
        body = await read_body(receive)
        if body is None:
            await answer(send, 413, f"The request is larger than {LARGEST // 2**20} MB.")
            return
        await self.app(scope, replay(body, receive), dressed(send))

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason of a refusal; None: it may pass."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if sum(name.lower() == b"host" for name, _ in scope["headers"]) != 1 or headers["host"] not in self.hosts:
            return 421, "Call this server by the address that the command printed."
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "Requests of other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "Requests of other sites are refused."
        if not scope["path"].startswith("/api/"):
            return None if self.reads.allow() else (429, "Too many requests at once; wait a second.")
        if not self.knows(headers, scope["query_string"]):
            if not self.strangers.allow():
                return 429, "Too many requests without the token; wait a minute."
            return 401, "The token is missing or wrong. Open the address that the command printed."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST:
            return 413, f"The request is larger than {LARGEST // 2**20} MB."
        rate = self.reads if scope["method"] in ("GET", "HEAD") else self.edits
        return None if rate.allow() else (429, "Too many requests at once; wait a second.")

    def knows(self, headers: Mapping[str, str], query: bytes) -> bool:
        """Whether the token came along: in a header, or in the address, where images have it."""
        given = headers.get("x-newfound-token")
        if given is None:
            given = "".join(parse_qs(query.decode("latin-1")).get("token", [])[:1])
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


async def read_body(receive: Any) -> bytes | None:
    """All of a body; None where it is too large, whatever its headers say."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body
        body += message.get("body", b"")
        if len(body) > LARGEST:
            return None
        if not message.get("more_body", False):
            return body


def replay(body: bytes, receive: Any) -> Any:
    """A `receive` that gives a body which was read already."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def dressed(send: Any) -> Any:
    """A `send` that adds `HEADERS`."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = message | {"headers": [*message.get("headers", []), *more]}
        await send(message)

    return with_headers


async def answer(send: Any, status: int, reason: str) -> None:
    """Refuse."""
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    send = dressed(send)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
