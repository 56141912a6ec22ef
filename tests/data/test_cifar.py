"""CIFAR from small files in the original format, from a real one where there is one, from what is no CIFAR, and through
torchvision's own downloader from a server on this machine.
"""

import functools
import hashlib
import http.server
import importlib.util
import os
import pickle
import socket
import struct
import tarfile
import threading

import numpy as np
import pytest
import torch

from newfound.data.cifar import CIFAR10, CIFAR100, fetch_cifar, read_cifar
from newfound.errors import InputError
from newfound.vision import vision
from tests.needs import need

LAYOUTS = {"cifar10": CIFAR10, "cifar100": CIFAR100}
LOCATION = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


class Python2(pickle._Pickler):  # the one written in Python, whose strings can be changed
    """Writes a pickle as Python 2 did for CIFAR: every string is bytes."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, string):
        data = string if isinstance(string, bytes) else string.encode("latin1")
        self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(string)

    dispatch[str] = dispatch[bytes] = save_string


def python2(content, path):
    with path.open("wb") as file:
        Python2(file, protocol=2).dump(content)
    path.write_bytes(path.read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))


def python3(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


def python3_bytes(content, path):
    """As someone saves it who loaded the original with encoding="bytes"."""
    content = {key.encode(): value for key, value in content.items()}
    path.write_bytes(pickle.dumps(content, protocol=4))


def pixels(n, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), np.uint8)


def write(folder, dataset, dump=python2):
    """A small dataset: four images a file, the label of each its row."""
    folder.mkdir(parents=True, exist_ok=True)
    if dataset == "cifar10":
        for seed, name in enumerate([*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"]):
            dump({"batch_label": name, "labels": [0, 1, 2, 3], "data": pixels(4, seed)}, folder / name)
        dump(
            {"num_cases_per_batch": 4, "label_names": ["airplane", "automobile", "bird", "cat"]},
            folder / "batches.meta",
        )
    else:
        for seed, name in enumerate(("train", "test")):
            labels = {"fine_labels": [3, 1, 2, 0], "coarse_labels": [0, 0, 1, 1]}
            dump(labels | {"filenames": list("abcd"), "data": pixels(4, seed)}, folder / name)
        names = {"fine_label_names": ["apple", "baby", "bear", "bed"], "coarse_label_names": ["fruit", "mammal"]}
        dump(names, folder / "meta")


@pytest.mark.parametrize("dump", [python2, python3, python3_bytes])
@pytest.mark.parametrize("below", [True, False])
def test_cifar10_is_its_five_batches_in_order(tmp_path, dump, below):
    write(tmp_path / LOCATION["cifar10"] if below else tmp_path, "cifar10", dump)
    images = read_cifar(CIFAR10, tmp_path)
    assert images.listing.classes == ("airplane", "automobile", "bird", "cat")
    assert images.listing.labels.tolist() == [0, 1, 2, 3] * 5
    assert images.listing.names[0] == "train/00000"
    assert images.listing.names[17] == "train/00017"
    for row in range(20):
        plane = pixels(4, row // 4)[row % 4].reshape(3, 32, 32)
        assert (images.pixels[row].numpy() == plane).all()


@pytest.mark.parametrize("dump", [python2, python3, python3_bytes])
@pytest.mark.parametrize(("part", "seed"), [("train", 0), ("test", 1)])
def test_cifar100_has_its_fine_labels(tmp_path, dump, part, seed):
    write(tmp_path, "cifar100", dump)
    images = read_cifar(CIFAR100, str(tmp_path), part)
    assert images.listing.classes == ("apple", "baby", "bear", "bed")
    assert images.listing.labels.tolist() == [3, 1, 2, 0]
    assert images.listing.names[3] == f"{part}/00003"
    assert (images.pixels.flatten(1).numpy() == pixels(4, seed)).all()


def test_the_test_images_of_cifar10_need_no_training_files(tmp_path):
    write(tmp_path, "cifar10")
    for part in range(1, 6):
        (tmp_path / f"data_batch_{part}").unlink()
    assert len(read_cifar(CIFAR10, tmp_path, "test")) == 4


class Trap:
    def __init__(self, call, *given):
        self.result = call, given

    def __reduce__(self):
        return self.result


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("call", "given", "name"),
    [
        (os.mkdir, ("sprung",), r"(posix|nt)\.mkdir"),
        (np.load, ("sprung",), r"numpy\.load"),
        (getattr, ((), "count"), "getattr"),
    ],
)
def test_a_pickle_that_asks_for_more_than_arrays_is_refused_before_it_runs(
    tmp_path, monkeypatch, protocol, call, given, name
):
    write(tmp_path, "cifar10")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": Trap(call, *given)}, protocol))
    with pytest.raises(InputError, match=rf"data_batch_3 asks for .*{name}, which could run a program\. Needed"):
        read_cifar(CIFAR10, tmp_path)
    assert not (tmp_path / "sprung").exists()


def lacking(folder):
    (folder / "data_batch_3").unlink()
    (folder / "batches.meta").unlink()


def cut(folder):
    whole = (folder / "data_batch_3").read_bytes()
    (folder / "data_batch_3").write_bytes(whole[: len(whole) // 2])


def listed(folder):
    python3([1, 2, 3], folder / "data_batch_3")


def replaced(**content):
    return lambda folder: python3({"data": pixels(4, 0), "labels": [0, 1, 2, 3]} | content, folder / "data_batch_3")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lacking, r"lacks data_batch_3, batches\.meta\. Needed: data_batch_1, .*batches\.meta, there or in"),
        (cut, r"data_batch_3 cannot be read \(.*\)\. Needed: a whole file"),
        (lambda folder: (folder / "data_batch_3").write_bytes(b""), r"data_batch_3 cannot be read \(EOFError"),
        (listed, r"data_batch_3 holds a list\. Needed: a dictionary"),
        (
            replaced(data=pixels(4, 0)[:, :100]),
            r"data_batch_3 holds data, labels\. Needed: data, n × 3072 bytes, and labels",
        ),
        (replaced(data=pixels(4, 0) / 255), r"data_batch_3 holds data, labels\. Needed: data, n × 3072"),
        (replaced(data=[1, 2]), r"data_batch_3 holds data, labels\. Needed: data, n × 3072"),
        (replaced(labels=[0, 1, 2]), r"data_batch_3 holds data, labels\. Needed: .* one for each"),
        (replaced(labels=None), r"data_batch_3 holds data, labels\. Needed: .* one for each"),
        (replaced(labels=[0, 1, 2, 9]), r"labels go from 0 to 9, with 4 class names"),
        (lambda folder: python3({}, folder / "batches.meta"), r"batches\.meta holds nothing\. Needed: label_names"),
        (lambda folder: python3({"label_names": "ab"}, folder / "batches.meta"), r"Needed: label_names, a list"),
    ],
)
def test_files_that_are_no_cifar_are_refused_by_name(tmp_path, damage, found):
    write(tmp_path, "cifar10")
    damage(tmp_path)
    with pytest.raises(InputError, match=found):
        read_cifar(CIFAR10, tmp_path)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_a_folder_without_cifar_is_told_what_it_needs(tmp_path, dataset):
    with pytest.raises(InputError, match=f"Needed: .*meta, there or in a folder {LOCATION[dataset]}"):
        read_cifar(LAYOUTS[dataset], tmp_path)
    with pytest.raises(InputError, match=f"does not exist. Needed: the folder {LOCATION[dataset]}"):
        read_cifar(LAYOUTS[dataset], tmp_path / "gone")


@pytest.mark.skipif("NEWFOUND_DATA" not in os.environ, reason="NEWFOUND_DATA does not point to CIFAR's real files")
@pytest.mark.parametrize(("dataset", "classes"), [("cifar10", 10), ("cifar100", 100)])
@pytest.mark.parametrize(("part", "n"), [("train", 50_000), ("test", 10_000)])
def test_the_real_files_are_read(dataset, classes, part, n):
    images = read_cifar(LAYOUTS[dataset], os.environ["NEWFOUND_DATA"], part)
    assert images.pixels.shape == (n, 3, 32, 32)
    assert images.listing.labels.bincount().tolist() == [n // classes] * classes
    assert images.listing.classes[-1] == ("truck" if dataset == "cifar10" else "worm")
    assert list(images.listing.classes) == sorted(images.listing.classes) or dataset == "cifar10"
    mean = images.pixels.float().mean((0, 2, 3)) / 255
    published = (0.4914, 0.4822, 0.4465) if dataset == "cifar10" else (0.507, 0.487, 0.441)
    assert torch.allclose(mean, torch.tensor(published), atol=0.01)


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def torchvision():
    need(importlib.util.find_spec("torchvision") is not None, "torchvision is not installed")
    return vision("torchvision.datasets")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *words):  # noqa: A002 (its name)
        """Nobody asked."""


@pytest.fixture
def address(tmp_path):
    """Where a server gives what lies in the folder `server`."""
    folder = tmp_path / "server"
    folder.mkdir()
    serve = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def archive(torchvision, tmp_path, monkeypatch, address):
    """A small CIFAR in an archive, and torchvision told that it is the real one."""

    def serve(dataset):
        layout, home = LAYOUTS[dataset], tmp_path / "server"
        write(home / layout.folder, dataset, python3)
        packed = home / "packed.tar.gz"
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(home / layout.folder, layout.folder)
        source = getattr(torchvision, layout.torchvision)
        monkeypatch.setattr(source, "url", f"{address}/{packed.name}")
        monkeypatch.setattr(source, "filename", packed.name)
        monkeypatch.setattr(source, "tgz_md5", md5(packed))
        for kind, files in (("train_list", layout.train), ("test_list", layout.test)):
            monkeypatch.setattr(source, kind, [[file, md5(home / layout.folder / file)] for file in files])
        meta = {"filename": layout.meta, "key": layout.classes, "md5": md5(home / layout.folder / layout.meta)}
        monkeypatch.setattr(source, "meta", meta)
        return source, packed

    return serve


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_what_is_fetched_is_what_the_reader_reads(archive, tmp_path, dataset):
    archive(dataset)
    folder = fetch_cifar(LAYOUTS[dataset], tmp_path / "data")
    assert folder == tmp_path / "data" / LAYOUTS[dataset].folder
    fetched, written = (read_cifar(LAYOUTS[dataset], place) for place in (tmp_path / "data", tmp_path / "server"))
    assert (fetched.pixels == written.pixels).all()
    assert fetched.listing.labels.tolist() == written.listing.labels.tolist()


def test_what_is_there_already_is_not_fetched_again(archive, tmp_path):
    _, packed = archive("cifar10")
    fetch_cifar(CIFAR10, tmp_path / "data")
    packed.unlink()
    assert fetch_cifar(CIFAR10, tmp_path / "data").is_dir()


def test_an_archive_that_is_not_the_real_one_is_refused(archive, tmp_path, monkeypatch):
    source, _ = archive("cifar10")
    monkeypatch.setattr(source, "tgz_md5", "0" * 32)
    with pytest.raises(InputError, match=r"cifar10 could not be fetched .*cifar-10-batches-py"):
        fetch_cifar(CIFAR10, tmp_path / "data")


def test_without_a_network_the_other_way_is_told(torchvision, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = closed.getsockname()[1]
        monkeypatch.setattr(torchvision.CIFAR10, "url", f"http://127.0.0.1:{port}/cifar.tar.gz")
        with pytest.raises(InputError) as refused:
            fetch_cifar(CIFAR10, tmp_path / "data")
    said = str(refused.value)
    assert "could not be fetched" in said
    assert "put its folder cifar-10-batches-py into" in said
    assert str(tmp_path / "data") in said
