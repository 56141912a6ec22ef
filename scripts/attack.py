"""Attack newfound with a folder of hostile files, and count what becomes of them.

    python scripts/attack.py            # some 2,000 files, every kind in KINDS; a few minutes
    python scripts/attack.py --each 1   # one of each kind, as the test has it

Prints a row per kind: files tried, read, left out with a reason, and neither (lost, for then the command crashed); and
the peak memory of `newfound discover` on it, beside that on a few harmless pictures. One seed, the same files.
"""

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

Draw = np.random.Generator
Make = Callable[[Path, Draw], object]

READ, LEFT_OUT, EITHER = "read", "left out", "either"
FEW = 12
"""Of kinds that take seconds each there are no more."""

CLASSES = 3

WATCHED = """
import pathlib, sys
from newfound.cli import main
try:
    main()
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    pathlib.Path("peak").write_text(status.partition("VmHWM:")[2].split()[0])
"""
"""The command, which writes down its peak memory in KiB. (What the parent is told begins with the parent's own.)"""


class Kind(NamedTuple):
    """A kind of hostile file."""

    expected: Literal["read", "left out", "either"]
    ending: str
    make: Make
    few: bool = False


def picture(draw: Draw, mode: str = "RGB", side: int = 48) -> Image.Image:
    """Coloured blots, which compress like a photograph."""
    blots = Image.fromarray(draw.integers(0, 256, (6, 6, 4), np.uint8), "RGBA")
    return blots.resize((side, side), Image.Resampling.BICUBIC).convert(mode)


def encode(draw: Draw, format_: str, mode: str = "RGB", **options: object) -> bytes:
    """A good picture as the bytes of a file."""
    file = io.BytesIO()
    picture(draw, mode).save(file, format_, **options)
    return file.getvalue()


def good(format_: str, mode: str = "RGB", **options: object) -> Make:
    """A file that is what it says, or what its ending does not."""
    return lambda path, draw: path.write_bytes(encode(draw, format_, mode, **options))


def animated(format_: str) -> Make:
    """Several frames or pages."""

    def make(path: Path, draw: Draw) -> None:
        first, *others = (picture(draw) for _ in range(3))
        first.save(path, format_, save_all=True, append_images=others)

    return make


def turned(path: Path, draw: Draw) -> None:
    """A photo that lies on its side, or is mirrored."""
    exif = Image.Exif()
    exif[0x0112] = int(draw.integers(1, 9))
    picture(draw).save(path, "JPEG", exif=exif)


def deep(format_: str) -> Make:
    """16 bits a pixel."""

    def make(path: Path, draw: Draw) -> None:
        Image.fromarray(np.asarray(picture(draw, "L")).astype(np.uint16) * 257).save(path, format_)

    return make


def fractions(path: Path, draw: Draw) -> None:
    """A TIFF of floats, some of them NaN and infinite."""
    values = draw.normal(size=(16, 16)).astype(np.float32)
    values[0, :4] = np.nan, np.inf, -np.inf, 3e38
    Image.fromarray(values).save(path, "TIFF")


def truncated(format_: str) -> Make:
    """A good file that ends too early."""

    def make(path: Path, draw: Draw) -> None:
        content = encode(draw, format_)
        path.write_bytes(content[: int(draw.uniform(0.1, 0.7) * len(content))])

    return make


def flipped(format_: str) -> Make:
    """A good file of which some bytes have changed."""

    def make(path: Path, draw: Draw) -> None:
        content = bytearray(encode(draw, format_))
        for place in draw.integers(0, len(content), 8):
            content[place] = draw.integers(0, 256)
        path.write_bytes(content)

    return make


def text(*beginnings: bytes) -> Make:
    """Something else, with something in it that differs."""
    return lambda path, draw: path.write_bytes(
        beginnings[draw.integers(len(beginnings))] + draw.bytes(40).hex().encode()
    )


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


@cache
def zeros(count: int) -> bytes:
    """So many bytes, all zero, deflated: a thousandth of them."""
    packer, block = zlib.compressobj(9), bytes(1 << 20)
    whole = b"".join(packer.compress(block) for _ in range(count >> 20))
    return whole + packer.compress(bytes(count % (1 << 20))) + packer.flush()


def png(width: int, height: int, colour: int, data: bytes, *, extra: bytes = b"", depth: int = 8) -> bytes:
    """A PNG by hand: nothing need fit together."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def bomb_text(path: Path, draw: Draw) -> None:
    """A PNG with text that unpacks to 200 MB."""
    path.write_bytes(png(8, 8, 2, zlib.compress(bytes(8 * 25)), extra=chunk(b"zTXt", b"a\0\0" + zeros(200 << 20))))


def bomb_profile(path: Path, draw: Draw) -> None:
    """A PNG with a colour profile that unpacks to 200 MB."""
    path.write_bytes(png(8, 8, 2, zlib.compress(bytes(8 * 25)), extra=chunk(b"iCCP", b"a\0\0" + zeros(200 << 20))))


def large(side: int) -> Make:
    """A PNG of few bytes and many pixels, with transparency; something behind its end makes each another file."""
    return lambda path, draw: path.write_bytes(png(side, side, 6, zeros(side * (4 * side + 1))) + draw.bytes(8))


def vast(path: Path, draw: Draw) -> None:
    """A header that promises more pixels than any memory has."""
    width, height = (int(side) for side in draw.integers(30_000, 65_000, 2))
    headers = [
        png(width << 15, height << 15, 6, b""),
        png(width, height, 6, zlib.compress(bytes(999))),
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, width, height, 0),
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 999, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 1, 1, 0, 0) + bytes(99),
        b"P6 %d %d 255\n" % (width, height) + bytes(99),
        tiff({256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 99}, bytes(99)),
        b"RIFF\x2a\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0" + 2 * (16_382).to_bytes(3, "little") + b"VP8L" + bytes(20),
        encode(draw, "JPEG").replace(b"\xff\xc0\0\x11\x08\0\x30\0\x30", b"\xff\xc0\0\x11\x08\xff\xff\xff\xff"),
    ]
    path.write_bytes(headers[draw.integers(len(headers))])


def tiff(tags: dict[int, int], data: bytes) -> bytes:
    """A TIFF by hand: eight bytes of header, the data, then the tags, all numbers of four bytes."""
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


def tile(path: Path, draw: Draw) -> None:
    """A TIFF of 16 × 16 pixels, in a tile of a thousand million."""
    side, data = 32_768, zeros(1 << 28)
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: len(data)}
    path.write_bytes(tiff(tags, data))


def sparse(path: Path, draw: Draw) -> None:
    """A file of 5 GB that takes no room."""
    good("PNG")(path, draw)
    os.truncate(path, 5 << 30)


def oddly_named(make: Make) -> Make:
    """A file whose name a spreadsheet would run, or a terminal obey."""
    names = (
        "=1+1",
        "-o",
        "@a",
        "+b",
        "\t",
        "\x1b[31mred",
        "two\nlines",
        "a\r",
        "\u202egnp",
        "'=",
        "[bold]",
        '"',
        "\x9b2J",
    )
    return lambda path, draw: make(path.with_name(f"{names[draw.integers(len(names))]} {path.name}"), draw)


def not_text(path: Path, draw: Draw) -> None:
    """A good picture whose name is no text."""
    good("PNG")(path.with_name(os.fsdecode(b"\xff\xe9 " + path.name.encode())), draw)


def folder(path: Path, draw: Draw) -> None:
    """A folder called as a picture, with one in it, and a way back up."""
    path.mkdir()
    good("PNG")(path / "inside.png", draw)
    (path / "around").symlink_to("..")


def unreadable(path: Path, draw: Draw) -> None:
    """A file that nobody but root may read."""
    good("PNG")(path, draw)
    path.chmod(0)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(pwned) print showpage\n%%EOF\n"
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>1</script></svg>'

KINDS: dict[str, Kind] = {
    **{f"good {name.lower()}": Kind(READ, name.lower(), good(name)) for name in ("PNG", "JPEG", "WEBP", "TIFF", "BMP")},
    **{f"animated {name.lower()}": Kind(READ, name.lower(), animated(name)) for name in ("PNG", "GIF", "WEBP", "TIFF")},
    **{f"16 bits {name.lower()}": Kind(READ, name.lower(), deep(name)) for name in ("PNG", "TIFF")},
    **{
        f"cut {name.lower()}": Kind(LEFT_OUT, name.lower(), truncated(name)) for name in ("PNG", "JPEG", "WEBP", "TIFF")
    },
    **{
        f"bytes flipped {name.lower()}": Kind(EITHER, name.lower(), flipped(name))
        for name in ("PNG", "JPEG", "TIFF", "GIF")
    },
    "bytes flipped webp": Kind(EITHER, "webp", flipped("WEBP")),
    "avif": Kind(READ, "avif", good("AVIF", speed=10)),
    "cmyk": Kind(READ, "jpg", good("JPEG", "CMYK")),
    "progressive": Kind(READ, "jpg", good("JPEG", progressive=True)),
    "turned": Kind(READ, "jpg", turned),
    "several in one jpeg": Kind(READ, "jpg", animated("MPO")),
    "palette, transparent": Kind(READ, "png", good("PNG", "P", transparency=3)),
    "glass": Kind(READ, "png", good("PNG", "RGBA")),
    "one bit": Kind(READ, "png", good("PNG", "1")),
    "wrong ending": Kind(READ, "gif", good("JPEG")),
    "odd names": Kind(READ, "png", oddly_named(good("PNG"))),
    "odd names, nothing in it": Kind(LEFT_OUT, "png", oddly_named(lambda path, draw: path.touch())),
    "names that are no text": Kind(LEFT_OUT, "png", not_text),
    "folders": Kind(READ, "png", folder),
    "nothing": Kind(LEFT_OUT, "png", lambda path, draw: path.touch()),
    "noise": Kind(LEFT_OUT, "jpg", lambda path, draw: path.write_bytes(draw.bytes(500))),
    "eps": Kind(LEFT_OUT, "png", text(EPS, b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, len(EPS)) + bytes(18) + EPS)),
    "pdf, svg, zip, html": Kind(LEFT_OUT, "png", text(b"%PDF-1.7\n", SVG, b"PK\x03\x04", b"<html>")),
    "formats not ours": Kind(
        LEFT_OUT, "png", lambda path, draw: good(("TGA", "DDS", "PCX", "JPEG2000", "QOI")[draw.integers(5)])(path, draw)
    ),
    "fractions": Kind(LEFT_OUT, "tif", fractions),
    "bomb in text": Kind(LEFT_OUT, "png", bomb_text),
    "bomb in profile": Kind(LEFT_OUT, "png", bomb_profile),
    "vast headers": Kind(LEFT_OUT, "png", vast),
    "vast tile": Kind(LEFT_OUT, "tif", tile, few=True),
    "9400 × 9400, transparent": Kind(READ, "png", large(9400), few=True),
    "12000 × 12000, transparent": Kind(LEFT_OUT, "png", large(12_000), few=True),
    "5 GB, sparse": Kind(LEFT_OUT, "png", sparse),
    "pipes": Kind(LEFT_OUT, "png", lambda path, draw: os.mkfifo(path)),
    "devices": Kind(LEFT_OUT, "png", lambda path, draw: path.symlink_to("/dev/zero")),
    "links in a circle": Kind(LEFT_OUT, "png", lambda path, draw: path.symlink_to(path.name)),
    "links to nothing": Kind(LEFT_OUT, "png", lambda path, draw: path.symlink_to("gone.png")),
    "unreadable": Kind(EITHER, "png", unreadable),
}


def make_folder(root: Path, each: int, seed: int = 0) -> None:
    """The hostile folder: a folder for each kind."""
    for name, kind in KINDS.items():
        draw = np.random.default_rng([seed, *name.encode()])
        (root / name).mkdir(parents=True)
        for number in range(min(each, FEW) if kind.few else each):
            kind.make(root / name / f"{number}.{kind.ending}", draw)


def make_harmless(root: Path, count: int) -> None:
    """Pictures that nothing is wrong with."""
    (root / "good").mkdir(parents=True)
    for number in range(count):
        good("PNG")(root / "good" / f"{number}.png", np.random.default_rng(number))


class Outcome(NamedTuple):
    """What became of a folder."""

    code: int  # the command's
    said: str
    read: tuple[str, ...]  # names
    left_out: dict[str, str]  # names, as Python writes them, with reasons
    peak: int  # MiB


def discover(place: Path, images: Path) -> Outcome:
    """Run the command on a folder, from another place with a cache of its own."""
    place.mkdir()
    words = ["discover", "--unlabelled", images.absolute(), "--classes", CLASSES, "--epochs", 1, "-o", "run"]
    words += ["--backbone", "efficientnet-lite0", "--size", 64, "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, words)],
        cwd=place,
        env=os.environ | {"NEWFOUND_CACHE": str(place / "cache")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    said = (done.stdout + done.stderr).decode(errors="backslashreplace")
    peak = int((place / "peak").read_text()) >> 10 if (place / "peak").is_file() else 0
    if done.returncode:
        return Outcome(done.returncode, said, (), {}, peak)
    about = json.loads((place / "run" / "discovery.json").read_text(encoding="utf-8"))
    left_out = dict(line.split(": ", 1) for line in about["skipped"])
    return Outcome(0, said, tuple(about["names"]), left_out, peak)


class Row(NamedTuple):
    """What became of a kind."""

    kind: str
    tried: int
    read: int
    left_out: int
    lost: int
    reason: str  # the most frequent


def tabulate(root: Path, outcome: Outcome) -> list[Row]:
    """A row for each kind in a hostile folder."""
    tried = Counter(path.name for path in root.iterdir() for _ in path.iterdir())
    read = Counter(name.split("/")[0] for name in outcome.read)
    reasons = {name: Counter[str]() for name in tried}
    for name, reason in outcome.left_out.items():
        reasons[name[1:].split("/")[0]][reason] += 1
    rows = []
    for name in KINDS:
        left = reasons[name].total()
        common = reasons[name].most_common(1)
        rows.append(
            Row(name, tried[name], read[name], left, tried[name] - read[name] - left, common[0][0] if common else "")
        )
    return rows


def main() -> None:
    """Make the folder, attack, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=48, help="files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_harmless(place / "harmless", FEW)
        make_folder(place / "hostile", given.each, given.seed)
        calm, outcome = discover(place / "calm", place / "harmless"), discover(place / "attack", place / "hostile")
        rows = tabulate(place / "hostile", outcome)
    print(f"{'kind':27} {'tried':>6} {'read':>6} {'left':>6} {'lost':>6}  reason")
    for row in rows:
        print(f"{row.kind:27} {row.tried:6} {row.read:6} {row.left_out:6} {row.lost:6}  {row.reason[:70]}")
    tried, read, left, lost = (sum(counts) for counts in zip(*(row[1:5] for row in rows), strict=True))
    print(f"{'all':27} {tried:6} {read:6} {left:6} {lost:6}  exit code {outcome.code}")
    print(f"peak memory: {outcome.peak} MiB; on {FEW} harmless pictures: {calm.peak} MiB")
    if outcome.code:
        print(outcome.said[-2000:])
    sys.exit(bool(outcome.code or lost))


if __name__ == "__main__":
    main()
