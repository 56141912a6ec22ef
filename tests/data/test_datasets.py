"""Digits and clothes."""

import gzip
import struct

import numpy as np
import pytest

from newfound.data.datasets import FASHION_MNIST, digits, fashion_mnist
from newfound.errors import InputError
from tests.needs import need


def written(folder, pixels, labels):
    for name, values in (("images-idx3", pixels), ("labels-idx1", labels)):
        head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
        (folder / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return folder


def test_digits_are_all_there_and_each_pixel_is_sixteen():
    images = digits()
    assert images.pixels.shape == (1797, 1, 32, 32)
    assert images.classes == tuple("0123456789")
    assert images.pixels.max() == 255
    assert (images.pixels[:, :, ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3) == images.pixels).all()


def test_clothes_are_read_as_they_were_written(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    images = fashion_mnist(written(tmp_path, pixels, np.array([9, 0, 1, 2, 3, 9], np.uint8)))
    assert (images.pixels[:, 0].numpy() == pixels).all()
    assert images.labels.tolist() == [9, 0, 1, 2, 3, 9]
    assert images.classes[9] == "ankle boot"


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        fashion_mnist(tmp_path)
    written(tmp_path, np.zeros((6, 28, 28), np.uint8), np.zeros(5, np.uint8))
    with pytest.raises(InputError, match=r"\(6, 28, 28\) and 5 labels"):
        fashion_mnist(tmp_path)
    for damaged in (b"", b"\x00\x00\x08", b"\x00\x00\x08\x03\x00\x00", b"\x00\x00\x09\x01\x00\x00\x00\x01a"):
        (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(damaged))
        with pytest.raises(InputError, match="no array of bytes"):
            fashion_mnist(tmp_path)


def test_debians_clothes_are_6000_of_each_kind():
    need(FASHION_MNIST.is_dir(), "Debian's dataset-fashion-mnist is not installed")
    assert np.bincount(fashion_mnist().labels.numpy()).tolist() == [6000] * 10
