"""A folder as people have them: broken files, odd names, links, pipes; and one that changes while it is read."""

import io
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from newfound import discover
from newfound.data.datasets import load_doodles
from newfound.data.listing import Listing, find_images, list_images
from newfound.discovery.result import Discovery
from newfound.discovery.settings import Run, StageOne
from newfound.discovery.tables import format_csv, read_csv
from newfound.encoders import extraction
from tests.commands import newfound
from tests.data.pictures import locked, save, write_doodles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such files")

STAGE = StageOne(backbone="efficientnet-lite0", size=64)
RUN = Run(epochs=1, device="cpu", mixed=False)
CLASSES, EACH = range(3), 12

NAMES = (
    "spaces  in it .png",
    "two\nlines.png",
    "a line\r\nand a return.png",
    "tab\t.png",
    "both \"quotes\" and 'these'.png",
    "commas, semicolons; and\\backslashes.png",
    "Καβούρι 蟹 🦀.png",
    "caf\u00e9.png",
    "cafe\u0301.png",  # looks the same, and is another file
    "\u202egnp.right to left.png",
    "[bold]tags[red].png",
    "<b>&amp;<script>.png",
    "-o.png",
    "%s{0}$HOME.png",
    "=1+1.png",
    f"{'long' * 62}.png",
    "folder.png/inside.png",
)
"""Names that are awkward, of good pictures."""

ODD = (
    "film.gif",
    "film.png",
    "film.webp",
    "deep.png",
    "glass.png",
    "palette.png",
    "turned.jpg",
    "upright.png",
    "print.jpg",
    "dot.png",
)
"""Good pictures of unusual kinds: in motion, of 16 bits, transparent, lying on a side, …"""

SAME = ("same/original.png", "same/a copy.png", "same/a hard link.png", "same/a link.png")
"""One picture under several names."""

DRAWINGS = tuple(f"{name}/{number}.png" for name in load_doodles("spare").listing.classes[:3] for number in range(EACH))
GOOD = {*NAMES, *ODD, *SAME, *DRAWINGS}

BAD = {
    "noise.jpg": "not an image of a kind that is read",
    "cut.jpg": "truncated",
    "torn.png": "damaged",
    "empty.png": "the file is empty",
    "vast.png": "more pixels than can be read; scale it down",
    "gone.png": "No such file",
    "round.png": "Too many levels of symbolic links",
    "pipe.png": "neither a file nor a link to one",
    "device.png": "neither a file nor a link to one",
    os.fsdecode(b"no text \xff.png"): "its name is not valid text; rename it",
    "shut": "cannot be opened: Permission denied",
}
"""What cannot be read, and why."""


def drawing(row: int) -> Image.Image:
    """One of the sample's drawings, of none of the classes that lie in folders."""
    pixels = load_doodles("spare").pixels[300 + row, 0].numpy()
    return Image.fromarray(pixels).resize((112, 112))


def write_odd(folder: Path) -> None:
    """The files in `ODD`."""
    frames = [drawing(row).convert("RGB") for row in (1, 2, 3)]
    for ending in ("gif", "png", "webp"):
        save(folder / f"film.{ending}", frames[0], save_all=True, append_images=frames[1:])
    save(folder / "deep.png", Image.fromarray(np.asarray(drawing(4)).astype(np.uint16) * 257))
    glass = drawing(5).convert("RGBA")
    glass.putalpha(drawing(6))
    save(folder / "glass.png", glass)
    save(folder / "palette.png", drawing(7).convert("P"), transparency=0)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = save(folder / "turned.jpg", drawing(8).transpose(Image.Transpose.ROTATE_90), exif=exif)
    save(folder / "upright.png", ImageOps.exif_transpose(Image.open(turned)))
    save(folder / "print.jpg", drawing(9).convert("CMYK"))
    save(folder / "dot.png", Image.new("RGB", (1, 1), "red"))


def write_bad(folder: Path) -> None:
    """The files in `BAD`."""
    (folder / "noise.jpg").write_bytes(np.random.default_rng(0).bytes(999))
    cut = save(folder / "cut.jpg", drawing(10))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    torn = save(folder / "torn.png", drawing(11))
    content = torn.read_bytes()
    torn.write_bytes(content[: len(content) // 2] + bytes(99) + content[len(content) // 2 :])
    (folder / "empty.png").touch()
    save(folder / "vast.png", Image.new("1", (20_000, 10_000)))
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "round.png").symlink_to("round.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "device.png").symlink_to("/dev/zero")
    save(folder / os.fsdecode(b"no text \xff.png"), drawing(12))
    save(folder / "shut" / "1.png", drawing(13))


def locked_names(root: Path) -> tuple[list[str], dict[str, str]]:
    """The listing, as somebody sees it who may not open the folder `shut`."""
    with locked(root, "shut") as here:
        return find_images(here)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder `pile`, and a cache of its own for all tests here."""
    root = tmp_path_factory.mktemp("hard")
    pile = root / "pile"
    write_doodles(pile, CLASSES, each=EACH, scale=4)
    write_odd(pile)
    for row, name in enumerate(NAMES):
        save(pile / name, drawing(20 + row))
    original = save(pile / SAME[0], drawing(14))
    shutil.copy(original, pile / SAME[1])
    (pile / SAME[2]).hardlink_to(original)
    (pile / SAME[3]).symlink_to("original.png")
    (pile / "same" / "around").symlink_to("..")
    (pile / "notes.txt").write_text("not about images")
    (pile / "._deep.png").write_bytes(b"what macOS leaves beside deep.png")
    write_bad(pile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWFOUND_CACHE", str(root / "cache"))
        yield root


@pytest.fixture(scope="module")
def found(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("newfound.data.listing.find_images", locked_names)
        return discover(unlabelled=place / "pile", classes=3, run=RUN, stage=STAGE)


def alone(file: Path, found: Discovery) -> torch.Tensor:
    """Features of one file, which nothing is near."""
    one = Listing.of([file.name], root=file.parent)
    return extraction.extract_features(one, found.found.model.pretrained.backbone).features()


def test_every_good_file_has_a_class_once(found):
    paths = found.assignments()["path"].tolist()
    assert len(paths) == len(set(paths))
    assert set(paths) == GOOD


def test_every_bad_file_is_told_once_with_a_reason(found):
    told = dict(line.split(": ", 1) for line in found.found.listing.skipped)
    assert len(told) == len(found.found.listing.skipped)
    assert told.keys() == {repr(name) for name in BAD}
    for name, reason in BAD.items():
        assert reason in told[repr(name)], name


def test_every_row_is_that_of_the_file_it_names(place, found, monkeypatch, tmp_path):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path))  # which has seen none of them
    rows = torch.tensor([found.found.listing.names.index(name) for name in (*ODD, *NAMES, *SAME)])
    files = [place / "pile" / found.found.listing.names[row] for row in rows]
    z = found.found.model.backbone(torch.cat([alone(file, found) for file in files])).z.detach()
    torch.testing.assert_close(found.found.features[rows], z, atol=0.01, rtol=0)  # kept in half precision
    nearest = torch.cdist(z, found.found.features).argmin(1)
    for file, row in zip(files, nearest.tolist(), strict=True):
        other = place / "pile" / found.found.listing.names[row]
        assert file.read_bytes() == other.read_bytes(), (file, other)


def test_a_photo_that_lies_on_its_side_is_seen_as_its_upright_copy_is(place, found, tmp_path):
    def unaugmented(file):
        seen = extraction.extract_features(Listing.of([str(file)], root=Path()), found.found.model.pretrained.backbone)
        calm, *augmented = seen.records[seen.places[0]].float()
        return (1 + extraction.AUGMENTED) * calm - sum(augmented)  # calm is the mean over all

    with Image.open(place / "pile" / "turned.jpg") as stored:
        lying = save(tmp_path / "lying.png", stored.copy())
    upright, turned = (unaugmented(place / "pile" / name) for name in ("upright.png", "turned.jpg"))
    torch.testing.assert_close(turned, upright, atol=0.05, rtol=0.05)
    assert (turned - upright).norm() < 0.1 * (unaugmented(lying) - upright).norm()


def test_one_picture_under_several_names_is_of_one_class_with_one_confidence(found):
    table = found.assignments().set_index("path").loc[[*SAME]]
    assert len(table) == len(SAME)
    assert len(table[["class", "confidence"]].drop_duplicates()) == 1, table


def test_the_tables_read_back_with_the_very_names(found, tmp_path):
    found.save(tmp_path)
    written, table = read_csv(tmp_path / "assignments.csv"), found.assignments()
    assert written["path"].tolist() == list(found.found.listing.names)
    assert written["class"].tolist() == table["class"].tolist()
    np.testing.assert_allclose(written["confidence"], table["confidence"])
    again = Discovery.load(tmp_path)
    assert again.found.listing.names == found.found.listing.names
    assert again.found.listing.skipped == found.found.listing.skipped


def test_a_carriage_return_in_a_name_ends_no_row(found, tmp_path):
    names = [f"{name}\r.png" for name in found.found.listing.names]
    listing = replace(found.found.listing, names=tuple(names))
    Discovery(replace(found.found, listing=listing)).save(tmp_path)
    assert read_csv(tmp_path / "assignments.csv")["path"].tolist() == names
    assert read_csv(io.StringIO(format_csv(found.assignments())))["path"].tolist() == list(found.found.listing.names)


def test_the_command_gets_through_and_lists_what_was_left_out(place, found):
    def flat(text):
        return "".join(text.split())  # a terminal breaks lines where it likes

    words = "--unlabelled", "pile", "--classes", 3, "--epochs", 1, "--size", 64, "--device", "cpu"
    done = newfound("discover", *words, "-o", "run", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for name in BAD.keys() - {"shut"}:
        assert flat(f"{name!r}: ") in flat(done.stderr), name
        assert flat(BAD[name]) in flat(done.stderr), name
    said = newfound("predict", "run", "pile", "-o", "said.csv", cwd=place)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("left out: ") == len(BAD) - 1
    for table in ("run/assignments.csv", "said.csv"):
        assert set(read_csv(place / table)["path"]) == GOOD | {"shut/1.png"}  # nothing is shut here


def test_files_that_change_while_others_are_read_are_told_or_seen_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(extraction, "CHUNK", 1)  # so files are read only a few ahead
    pile = tmp_path / "pile"
    write_doodles(pile, CLASSES, each=4, scale=4)
    names = list_images(pile, labelled=False).names
    gone, broken, folder, other = names[-4:]
    original = (pile / other).read_bytes()

    def change(stage, total, row):
        if stage == "look: unlabelled" and (pile / gone).exists():
            (pile / gone).unlink()
            (pile / broken).write_bytes(original[:99])
            (pile / folder).unlink()
            (pile / folder).mkdir()
            save(pile / other, drawing(1))
            save(pile / "late.png", drawing(2))

    found = discover(unlabelled=pile, classes=3, run=RUN, stage=STAGE, progress=change)
    assert found.found.listing.names == (*names[:-4], other)
    assert [line.split(": ")[0] for line in found.found.listing.skipped] == [
        repr(name) for name in (gone, broken, folder)
    ]
    z = found.found.model.backbone(alone(pile / other, found)).z[0]
    torch.testing.assert_close(found.found.features[-1], z.detach(), atol=0.01, rtol=0)
    (pile / "original.png").write_bytes(original)
    before = found.found.model.backbone(alone(pile / "original.png", found)).z[0]
    assert (found.found.features[-1] - before).norm() > 0.1


def test_files_that_vanish_once_they_were_looked_at_leave_grey_copies(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWFOUND_CACHE", str(tmp_path / "cache"))
    write_doodles(tmp_path / "pile", CLASSES, each=4, scale=4)

    def vanish(stage, total, row):
        if stage == "discover":
            shutil.rmtree(tmp_path / "pile", ignore_errors=True)

    given = {"unlabelled": tmp_path / "pile", "classes": 3, "run": RUN, "stage": STAGE, "progress": vanish}
    found = discover(**given, output=tmp_path / "run")
    assert len(found.assignments()) == 12
    assert not found.found.listing.skipped
    assert all((copy == 128).all() for copy in found.found.thumbnails.values())
    assert (tmp_path / "run" / "report.html").is_file()
