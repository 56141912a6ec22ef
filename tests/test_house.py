"""The house is as its pages draw it, and no part of it is too long to read."""

import ast
import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import newfound

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "newfound"

FUNCTION, FILE = 50, 350
"""Lines of a function, from `def` on, and of a file, at most."""

LONG: dict[str, str] = {}
"""Functions that may be longer ("file.py:name"), and why."""


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def drawn_layers():
    """The layers of the page: lines of the first block, rooms on one line beside one another."""
    (block,) = re.findall(r"## The rooms.*?```\n(.*?)```", read("docs/house.md"), re.DOTALL)
    return [line.split(" │ ") for line in block.splitlines()]


def enforced_layers():
    """The layers that imports are held to."""
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Imports point one way"]
    return [[name.removeprefix("newfound.") for name in layer.split(" | ")] for layer in layers]


def described_rooms():
    """The first column of the page's table."""
    table = read("docs/house.md").partition("| room | holds |")[2].partition("\n\n")[0]
    return [name.removesuffix(".py").removesuffix("/") for name in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)]


def named_paths(text):
    """Files and folders that a text names in its sentences, each with the line it stands in."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for line in prose.splitlines():
        for word in re.findall(r"[\w./-]+", " ".join(re.findall(r"`([^`]+)`", line))):
            if re.search(r"\.(?:py|md|toml)$|/$", word) and "NAME" not in word:
                yield word, line


def test_images_are_opened_by_format_never_by_what_a_file_says_it_is():
    for path in sorted(SOURCE.rglob("*.py")):
        for call in re.findall(r"Image\.open\((.*)", path.read_text(encoding="utf-8")):
            assert "formats=" in call, f"{path}: {call}"


def test_type_checkers_are_told_of_every_public_name_where_it_is_really_loaded_from():
    (late,) = [part for part in ast.parse(read("src/newfound/__init__.py")).body if isinstance(part, ast.If)]
    told = {part.names[0].asname: part.module for part in late.body if isinstance(part, ast.ImportFrom)}
    assert told == newfound._PUBLIC


ASIDE = [path for place in ("benchmarks", "docs", "scripts") for path in sorted((ROOT / place).glob("*.py"))]


@pytest.mark.parametrize("path", ASIDE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_runs_seldom_names_nothing_that_is_gone(path):
    for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(part, ast.ImportFrom) and (part.module or "").partition(".")[0] == "newfound":
            module = import_module(part.module)
            for name in (each.name for each in part.names):
                room = hasattr(module, "__path__") and find_spec(f"{part.module}.{name}") is not None
                assert room or hasattr(module, name), f"line {part.lineno}: {part.module} has no {name}"


def test_the_layers_that_are_drawn_are_those_that_are_enforced():
    assert drawn_layers() == enforced_layers()


def test_every_room_has_a_line_and_every_line_a_room():
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert sorted(described_rooms()) == sorted(there - {"__init__", "__main__"})
    assert described_rooms() == [room for layer in drawn_layers() for room in layer]


@pytest.mark.parametrize("page", ["docs/house.md", "CONTRIBUTING.md"])
def test_every_file_and_folder_that_a_page_names_exists(page):
    found = [*named_paths(read(page))]
    assert found
    for word, line in found:
        room = re.match(r"\| `(\w+)/`", line)  # what a line says of a room is in it
        places = [ROOT, SOURCE, *([SOURCE / room[1]] if room else [])]
        assert any((place / word).exists() for place in places), f"{page}: {word}"


def test_a_file_that_does_not_exist_would_be_noticed():
    names = [
        word for word, _ in named_paths("See `nowhere/lost.py` and `lost/`.\n```\n`drawn.py`\n```\n`a.b` in `NAME.py`")
    ]
    assert names == ["nowhere/lost.py", "lost/"]


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


SOURCES = [pytest.param(path, id=str(path.relative_to(SOURCE))) for path in sorted(SOURCE.rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES)
def test_no_function_is_longer_than_a_screen(path):
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        lines = function.end_lineno - function.lineno + 1
        name = f"{path.relative_to(SOURCE).as_posix()}:{function.name}"
        assert lines <= FUNCTION or name in LONG, f"{name} has {lines} lines: split it, or say in LONG why not"


@pytest.mark.parametrize("path", SOURCES)
def test_a_long_file_says_why_at_its_top(path):
    text = path.read_text(encoding="utf-8")
    why = re.search(r"^Long, for \w+", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE)
    lines = len(text.splitlines())
    assert (lines > FILE) == bool(why), f"{lines} lines: split it, or say why not (“Long, for …”); short files need not"


def test_every_exception_is_needed():
    for name in LONG:
        path, _, function = name.partition(":")
        found = functions(ast.parse((SOURCE / path).read_text(encoding="utf-8")))
        assert any(node.name == function and node.end_lineno - node.lineno >= FUNCTION for node in found), name
