"""CIFAR through torchvision's own downloader, from a server on this machine."""

import functools
import hashlib
import http.server
import importlib.util
import socket
import tarfile
import threading

import pytest

from newfound.data.cifar import LAYOUTS, cifar
from newfound.data.download import NAMES, download
from newfound.errors import InputError
from newfound.vision import vision
from tests.data.test_cifar import python3, write
from tests.needs import need


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
        source = getattr(torchvision, NAMES[dataset])
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
    folder = download(dataset, tmp_path / "data")
    assert folder == tmp_path / "data" / LAYOUTS[dataset].folder
    fetched, written = (cifar(place, dataset) for place in (tmp_path / "data", tmp_path / "server"))
    assert (fetched.pixels == written.pixels).all()
    assert fetched.labels.tolist() == written.labels.tolist()


def test_what_is_there_already_is_not_fetched_again(archive, tmp_path):
    _, packed = archive("cifar10")
    download("cifar10", tmp_path / "data")
    packed.unlink()
    assert download("cifar10", tmp_path / "data").is_dir()


def test_an_archive_that_is_not_the_real_one_is_refused(archive, tmp_path, monkeypatch):
    source, _ = archive("cifar10")
    monkeypatch.setattr(source, "tgz_md5", "0" * 32)
    with pytest.raises(InputError, match=r"cifar10 could not be fetched .*cifar-10-batches-py"):
        download("cifar10", tmp_path / "data")


def test_without_a_network_the_other_way_is_told(torchvision, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = closed.getsockname()[1]
        monkeypatch.setattr(torchvision.CIFAR10, "url", f"http://127.0.0.1:{port}/cifar.tar.gz")
        with pytest.raises(InputError) as refused:
            download("cifar10", tmp_path / "data")
    said = str(refused.value)
    assert "could not be fetched" in said
    assert "put its folder cifar-10-batches-py into" in said
    assert str(tmp_path / "data") in said


def test_an_unknown_dataset_is_refused_with_those_that_exist_and_the_nearest(tmp_path):
    with pytest.raises(InputError, match=r"no dataset 'cifar-100'.*cifar10, cifar100\. Did you mean cifar100\?"):
        download("cifar-100", tmp_path)
