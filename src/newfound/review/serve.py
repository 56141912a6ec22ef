"""newfound review: a server on this machine alone, and the browser opened at its address."""

import secrets
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path

import uvicorn

from newfound import console
from newfound.data.decoding import configure_pillow
from newfound.errors import InputError, counted
from newfound.review.desk import Desk
from newfound.review.guard import Guard
from newfound.review.pictures import Pictures
from newfound.review.server import build_app

HERE = "127.0.0.1"


def review(folder: Path, *, by: str = "", images: Path | None = None, port: int = 0, open_browser: bool = True) -> None:
    """Serve a run's review page until somebody stops it; then tables and report are written."""
    desk = Desk(folder, by=by)
    with listen(port) as place:
        port, token = place.getsockname()[1], secrets.token_urlsafe(24)
        server = uvicorn.Server(configure(guarded(desk, images, token, port)))
        address = f"http://{HERE}:{port}/#token={token}"
        console.say(f"{counted(len(desk.run.found), 'image')} to review at {address}")
        console.say("What you say is written down at once. Ctrl-C ends it, and writes tables and report.")
        with suppress(KeyboardInterrupt), configure_pillow():  # uvicorn raises it again when it has served to the end
            if open_browser:
                webbrowser.open(address)
            server.run(sockets=[place])
    desk.close()
    console.say(f"Tables and report: {folder}")


def listen(port: int) -> socket.socket:
    """A socket that only this machine reaches; port 0: any that is free."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((HERE, port))
        place.listen(128)  # a browser that is quicker than the server waits, and is not refused
    except (OSError, OverflowError) as error:
        place.close()
        raise InputError(
            f"Port {port} cannot be had ({error}). Leave --port out, and a free one is taken, or give another."
        ) from error
    return place


def guarded(desk: Desk, images: Path | None, token: str, port: int) -> Guard:
    """The server with its guard, as it is called on this machine."""
    hosts = frozenset(f"{name}:{port}" for name in (HERE, "localhost"))
    return Guard(build_app(desk, Pictures(desk.run.found, images)), token, hosts)


def configure(app: Guard) -> uvicorn.Config:
    """How uvicorn serves: quietly, and no more at once than a browser asks for."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=200,
        timeout_graceful_shutdown=3,
        ws="none",
    )
