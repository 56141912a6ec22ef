"""Datasets by name: their images, and the published splits of their classes."""

import gzip
import hashlib
import os
import struct
from functools import partial
from importlib import resources

import numpy as np
import pytest

from newfound.data.datasets import (
    DATASETS,
    FASHION_MNIST,
    fetch_dataset,
    load_dataset,
    load_digits,
    load_doodles,
    load_fashion_mnist,
    split_classes,
    split_dataset,
)
from newfound.data.pixels import arrays
from newfound.errors import InputError
from tests.needs import need


def some(classes):
    """Two images of each of so many classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (2 * classes, 4, 4, 3), np.uint8)
    return arrays(pixels, [*range(classes)] * 2)


@pytest.mark.parametrize(
    ("dataset", "name", "known", "novel"),
    [
        ("cifar10", "5-5", range(5), range(5, 10)),
        ("cifar100", "80-20", range(80), range(80, 100)),
        ("cifar100", "50-50", range(50), range(50, 100)),
        ("cifar100", "20-80", range(20), range(20, 100)),
        ("cifar100", "80-10", range(80), range(90, 100)),
        ("fashion-mnist", "5-5", range(5), range(5, 10)),
        ("digits", "0-4", range(5), range(5, 10)),
        ("digits", "5-9", range(5, 10), range(5)),
        ("digits", "even", range(0, 10, 2), range(1, 10, 2)),
    ],
)
def test_datasets_are_split_as_published(dataset, name, known, novel):
    split = split_dataset(some(DATASETS[dataset].classes), dataset, name)
    assert split.known.listing.classes == tuple(map(str, known))
    assert split.novel_classes == tuple(map(str, novel))
    assert len(split.known) == 2 * len(known)
    assert len(split.novel) == len(split.truth) == 2 * len(novel)


@pytest.mark.skipif("NEWFOUND_DATA" not in os.environ, reason="NEWFOUND_DATA does not point to CIFAR's real files")
@pytest.mark.parametrize(
    ("dataset", "name", "known", "novel"),
    [
        ("cifar10", "5-5", 25_000, 25_000),
        ("cifar100", "80-20", 40_000, 10_000),
        ("cifar100", "20-80", 10_000, 40_000),
        ("cifar100", "80-10", 40_000, 5_000),
    ],
)
def test_the_real_cifar_gives_the_published_counts(dataset, name, known, novel):
    split = split_dataset(load_dataset(dataset, os.environ["NEWFOUND_DATA"]), dataset, name)
    assert (len(split.known), len(split.novel)) == (known, novel)


def test_a_number_behind_a_split_orders_the_classes_anew():
    order = np.random.default_rng(11).permutation(10).tolist()
    assert split_classes("cifar10", "5-5@11") == (tuple(order[:5]), tuple(order[5:]))
    split = split_dataset(some(10), "cifar10", "5-5@11")
    assert split.known.listing.classes == tuple(map(str, order[:5]))
    assert split.novel_classes == tuple(map(str, order[5:]))
    hundred = split_classes("cifar100", "80-10@12")
    assert len({*hundred.known, *hundred.novel}) == 90
    assert split_classes("cifar10", "5-5@11") != split_classes("cifar10", "5-5@12")


@pytest.mark.parametrize("name", ["5-5@", "5-5@x", "5-5@-1", "@3"])
def test_an_order_that_is_no_number_is_refused(name):
    with pytest.raises(InputError, match="as in 5-5@11"):
        split_classes("cifar10", name)


def test_an_unknown_split_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"no split '90-10' of cifar100\. There are: 80-20, .*Did you mean 80-10"):
        split_dataset(some(100), "cifar100", "90-10")


@pytest.mark.parametrize(("dataset", "name"), [(name, split) for name, of in DATASETS.items() for split in of.splits])
def test_images_of_another_number_of_classes_are_refused(dataset, name):
    needed = DATASETS[dataset].classes
    match = rf"have 7 classes\. Needed for the split {name} of {dataset}: {needed}\."
    with pytest.raises(InputError, match=match):
        split_dataset(some(7), dataset, name)


def test_every_split_takes_classes_that_its_dataset_has_and_none_twice():
    for name, dataset in DATASETS.items():
        for split, (known, novel) in dataset.splits.items():
            assert len({*known, *novel}) == len(known) + len(novel), (name, split)
            assert {*known, *novel} <= {*range(dataset.classes)}, (name, split)


def test_a_dataset_is_loaded_by_its_name_and_part():
    for part in DATASETS["doodles"].parts:
        assert load_dataset("doodles", part=part).listing.names == load_doodles(part).listing.names
    assert load_dataset("doodles").listing.names == load_doodles("known").listing.names
    assert len(load_dataset("digits")) == 1797
    count = sum(len(load_doodles(part).listing.classes) for part in DATASETS["doodles"].parts)
    assert count == DATASETS["doodles"].classes


def test_unknown_datasets_and_parts_are_refused_with_those_that_exist():
    with pytest.raises(InputError, match=r"no dataset 'cifar'.*cifar10, cifar100, doodles, digits, fashion-mnist\."):
        load_dataset("cifar")
    with pytest.raises(InputError, match=r"doodles has no part 'tests'\. There are: known, novel, spare\."):
        load_dataset("doodles", part="tests")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_dataset_that_the_machine_has_not_asks_for_its_folder(name):
    for ask in (DATASETS[name].check, partial(load_dataset, name)):
        with pytest.raises(InputError, match=rf"No folder with {name} was given\. Needed: .*newfound data {name}`"):
            ask(None)


def test_what_cannot_be_fetched_is_refused_with_what_can_and_the_nearest(tmp_path):
    with pytest.raises(
        InputError, match=r"no dataset 'cifar-100' to get\. There are: cifar10, cifar100\. Did you mean"
    ):
        fetch_dataset("cifar-100", tmp_path)
    with pytest.raises(InputError, match=r"no dataset 'digits' to get\. There are: cifar10, cifar100\."):
        fetch_dataset("digits", tmp_path)


@pytest.mark.parametrize(
    ("group", "classes", "first", "pixels"),
    [
        ("known", 100, "tornado", "b3e4c686eef3945e60b6c2b4f9c9a9127c4e40d70cb6afc4ebccba5d573c4564"),
        ("novel", 10, "lion", "70c59f4fe9c96bdaf67f9f70dc30c8a06c858d764f364dae2943306cff165777"),
        ("spare", 10, "television", "4d6fb5d056a1a16e3715a6fd3d547392c82d7eeb6e312b6a0569c630760fd0f1"),
    ],
)
def test_the_doodles_are_those_of_the_source(group, classes, first, pixels):
    images = load_doodles(group)
    assert images.pixels.shape == (100 * classes, 1, 28, 28)
    assert len(images.listing.classes) == classes
    assert images.listing.classes[0] == first
    assert images.listing.names[:2] == (f"{first}/0", f"{first}/1")
    for name, label in zip(images.listing.names, images.listing.labels.tolist(), strict=True):
        assert name.split("/")[0] == images.listing.classes[label]
    assert images.listing.labels.bincount().tolist() == [100] * classes
    # the drawings as the npm package has them, each value v as round(255 · v), hashed without a mosaic in between
    assert hashlib.sha256(images.pixels.numpy().tobytes()).hexdigest() == pixels


def test_doodles_are_bright_ink_on_black():
    pixels = load_doodles("spare").pixels
    assert (pixels == 0).float().mean() > 0.6
    assert (pixels.flatten(1).amax(1) == 255).all()


def test_no_category_is_in_two_groups():
    classes = [name for group in ("known", "novel", "spare") for name in load_doodles(group).listing.classes]
    assert len(set(classes)) == 120


def test_the_sample_travels_with_its_licence():
    text = (resources.files("newfound.data") / "doodles/LICENSE.txt").read_text()
    assert "This data made available by Google, Inc." in text
    assert "https://creativecommons.org/licenses/by/4.0/" in text
    assert "Copyright (c) 2017 Thomas Wagenaar" in text


def written(folder, pixels, labels):
    for name, values in (("images-idx3", pixels), ("labels-idx1", labels)):
        head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
        (folder / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return folder


def test_digits_are_all_there_and_each_pixel_is_sixteen():
    images = load_digits()
    assert images.pixels.shape == (1797, 1, 32, 32)
    assert images.listing.classes == tuple("0123456789")
    assert images.pixels.max() == 255
    assert (images.pixels[:, :, ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3) == images.pixels).all()


def test_clothes_are_read_as_they_were_written(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    images = load_fashion_mnist(written(tmp_path, pixels, np.array([9, 0, 1, 2, 3, 9], np.uint8)))
    assert (images.pixels[:, 0].numpy() == pixels).all()
    assert images.listing.labels.tolist() == [9, 0, 1, 2, 3, 9]
    assert images.listing.classes[9] == "ankle boot"


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_fashion_mnist(tmp_path)
    written(tmp_path, np.zeros((6, 28, 28), np.uint8), np.zeros(5, np.uint8))
    with pytest.raises(InputError, match=r"\(6, 28, 28\) and 5 labels"):
        load_fashion_mnist(tmp_path)
    for damaged in (b"", b"\x00\x00\x08", b"\x00\x00\x08\x03\x00\x00", b"\x00\x00\x09\x01\x00\x00\x00\x01a"):
        (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(damaged))
        with pytest.raises(InputError, match="no array of bytes"):
            load_fashion_mnist(tmp_path)


def test_debians_clothes_are_6000_of_each_kind():
    need(FASHION_MNIST.is_dir(), "Debian's dataset-fashion-mnist is not installed")
    assert np.bincount(load_fashion_mnist().listing.labels.numpy()).tolist() == [6000] * 10
