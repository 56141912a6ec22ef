"""What the page asks and says, as an HTTP interface: a thin shell over the desk, the views and the pictures."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from fastapi import Body, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from newfound.discovery.export import FORMATS
from newfound.errors import InputError, NoRoomError
from newfound.report.page import plotly_script
from newfound.review import views
from newfound.review.desk import Desk, StaleError
from newfound.review.pictures import Picture, Pictures, UnshowableError

PAGE = Path(__file__).with_name("page")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

STATUS = {StaleError: 409, NoRoomError: 503}
"""How the protocol calls what a person can mend; what is not here is a 422."""

MOST_ROWS, LONGEST = 1_000_000, 200

DRAWING = 4
"""Threads that draw pictures. They have no others: an edit never waits behind two hundred thumbnails, and each thread
keeps memory of its own.
"""

Row = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[int, Field(ge=-9, le=2**53)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]


class Saying(BaseModel):
    """Something that somebody says who has seen so many edits."""

    model_config = ConfigDict(extra="forbid", strict=True)
    seen: Row


class Rename(Saying):
    """Another name for a class."""

    action: Literal["rename"]
    number: Number
    name: Name


class Merge(Saying):
    """Several classes are one."""

    action: Literal["merge"]
    numbers: Annotated[list[Number], Field(min_length=2, max_length=1000)]
    force: bool = False  # two known ones among them are meant


class Split(Saying):
    """A class is several, with these rows."""

    action: Literal["split"]
    number: Number
    parts: Annotated[list[Rows], Field(min_length=2, max_length=100)]


class Move(Saying):
    """Images are of a class."""

    action: Literal["move"]
    rows: Rows
    to: Number


class NewClass(Saying):
    """Images are a class of their own."""

    action: Literal["new class"]
    rows: Rows
    name: Name | None = None


class SetAside(Saying):
    """Images are of no class."""

    action: Literal["set aside"]
    rows: Rows


class Accept(Saying):
    """Images of a class are right: these, or all."""

    action: Literal["accept"]
    number: Number
    rows: Rows | None = None


class AcceptAsGuessed(Saying):
    """Images are each of the class that they are thought to be of."""

    action: Literal["accept as guessed"]
    rows: Rows


class Turn(Saying):
    """What was said last is taken back, or said again."""

    action: Literal["undo", "redo"]


class Export(BaseModel):
    """The present classes are to be written for other tools."""

    model_config = ConfigDict(extra="forbid", strict=True)
    to: Annotated[str, Field(max_length=40)]
    link: bool = False


class Selection(BaseModel):
    """Some images."""

    model_config = ConfigDict(extra="forbid", strict=True)
    rows: Rows


Said = Annotated[
    Rename | Merge | Split | Move | NewClass | SetAside | Accept | AcceptAsGuessed | Turn, Body(discriminator="action")
]


class Compact(Response):
    """JSON without spaces, made without looking at each value twice."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def build_app(desk: Desk, pictures: Pictures) -> FastAPI:
    """The server, without its guard (`guard.Guard`)."""
    app = FastAPI(title="newfound review", docs_url=None, redoc_url=None, openapi_url=None)
    _answer_errors(app)
    _serve_page(app)
    _serve_views(app, desk)
    _serve_pictures(app, pictures)
    _serve_edits(app, desk)
    _serve_map(app, desk)
    return app


def _answer_errors(app: FastAPI) -> None:
    """What a person can mend is told with a 4xx."""

    @app.exception_handler(InputError)
    def refuse(request: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, STATUS.get(type(error), 422))

    @app.exception_handler(UnshowableError)
    def miss(request: Request, error: UnshowableError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 404)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"detail": f"The request cannot be understood: {where}: {first['msg']}"}, 422)

    @app.exception_handler(OSError)
    def fail(request: Request, error: OSError) -> JSONResponse:
        return JSONResponse({"detail": f"A file cannot be read or written: {error.strerror or error}"}, 503)


def _serve_page(app: FastAPI) -> None:
    """The page itself: a few files, read once; nothing of the run is in them."""
    assets = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}
    script = plotly_script().encode()
    hold = {"cache-control": "max-age=3600"}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(assets["index.html"], media_type="text/html", headers={"cache-control": "no-store"})

    @app.get("/page/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in assets:
            return JSONResponse({"detail": "There is no such file."}, 404)
        return Response(assets[name], media_type=TYPES[Path(name).suffix], headers={"cache-control": "no-cache"})

    @app.get("/plotly.js", include_in_schema=False)
    def plotly() -> Response:
        return Response(script, media_type="text/javascript", headers=hold)


def _serve_views(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/state")
    def state() -> Response:
        return Compact(desk.state())

    @app.get("/api/length")
    def length() -> Response:
        return Compact({"length": desk.length()})

    @app.get("/api/images")
    def images(number: Annotated[Number, Query()], order: views.Order = "typical") -> Response:
        return Compact(views.view_images(desk.scene(), number, order))

    @app.get("/api/describe/{row}")
    def describe(row: Annotated[Row, InPath()]) -> Response:
        scene = desk.scene()
        views.check_rows(scene.now, [row])
        return Compact(views.view_image(scene, row))

    @app.post("/api/captions")
    def captions(selection: Selection) -> Response:
        return Compact(views.view_captions(desk.scene(), selection.rows[:2000]))

    @app.get("/api/similar/{number}")
    def similar(number: Annotated[Number, InPath()]) -> Response:
        return Compact({"numbers": views.similar_classes(desk.scene(), number)})

    @app.post("/api/pick")
    def pick(selection: Selection) -> Response:
        scene = desk.scene()
        views.check_rows(scene.now, selection.rows)
        return Compact(views.pack_guesses(scene, torch.tensor(selection.rows)))

    @app.post("/api/more")
    def more(selection: Selection) -> Response:
        return Compact(views.more_like(desk.scene(), selection.rows))

    @app.get("/api/split/{number}")
    def split(number: Annotated[Number, InPath()], into: Annotated[int, Query(ge=2, le=100)] = 2) -> Response:
        return Compact({"parts": desk.propose(number, into)})


def _serve_pictures(app: FastAPI, pictures: Pictures) -> None:
    pool = ThreadPoolExecutor(DRAWING, "pictures")

    async def send(draw: Callable[[], Picture]) -> Response:
        picture = await asyncio.get_running_loop().run_in_executor(pool, draw)
        return Response(picture.content, media_type=picture.kind, headers={"cache-control": "private, max-age=3600"})

    def check(row: int) -> None:
        if row >= len(pictures.found):
            raise UnshowableError(f"there is no image {row}")

    @app.get("/api/thumb/{row}")
    async def thumb(row: Annotated[Row, InPath()], side: Annotated[int, Query(ge=1, le=4096)] = 192) -> Response:
        check(row)
        return await send(lambda: pictures.thumbnail(row, side))

    @app.get("/api/labelled/{place}/{which}")
    async def labelled(place: Annotated[Row, InPath()], which: Annotated[Row, InPath()]) -> Response:
        return await send(lambda: pictures.labelled(place, which))

    @app.get("/api/image/{row}")
    async def original(row: Annotated[Row, InPath()]) -> Response:
        check(row)
        return await send(lambda: pictures.original(row))


def _serve_edits(app: FastAPI, desk: Desk) -> None:
    @app.post("/api/edits")
    def edit(said: Said) -> Response:
        if isinstance(said, Turn):
            undo = said.action == "undo"
            return Compact(desk.turn(lambda run: run.undo() if undo else run.redo(), said.seen))
        result, state = desk.say(lambda run: act(run, said), said.seen)
        return Compact(state | {"result": result})

    @app.get("/api/export")
    def plan() -> Response:
        return Compact({"folders": desk.plan_export(), "formats": [*FORMATS]})

    @app.post("/api/export")
    def export(asked: Export) -> Response:
        return Compact({"place": str(desk.export(asked.to, link=asked.link))})


def act(run: Any, said: Any) -> Any:
    """Do what was said, by the verbs that everybody has; returns the number that a person will want to look at next."""
    match said:
        case Rename():
            run.rename(said.number, said.name)
            return said.number
        case Merge():
            return run.merge(said.numbers, force=said.force)
        case Split():
            return run.split(said.number, said.parts)
        case Move():
            run.move(said.rows, said.to)
            return said.to
        case NewClass():
            return run.new_class(said.rows, said.name)
        case SetAside():
            run.set_aside(said.rows)
            return None
        case Accept():
            run.accept(said.number, images=said.rows)
            return said.number
        case AcceptAsGuessed():
            return run.accept(None, images=said.rows)
    raise AssertionError(said)


def _serve_map(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/map")
    def places() -> Response:
        ready, points = desk.places.look()
        x, y = points.astype(float).round(3).T.tolist()
        return Compact({"ready": ready, "rows": desk.places.rows.tolist(), "x": x, "y": y})

    @app.get("/api/map/classes")
    def classes() -> Response:
        return Compact({"numbers": views.view_map(desk.scene(), desk.places.rows)})
