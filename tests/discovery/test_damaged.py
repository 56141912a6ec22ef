"""Every file of a run and of a model, damaged in every field: refused by its name, or read as something that can be."""

import copy
import itertools
import json
import math
import os
import random
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from newfound.discovery.edits import Edit, classes
from newfound.discovery.found import Fit
from newfound.discovery.journal import EDITS
from newfound.discovery.pages import page
from newfound.discovery.storage import DISCOVERY, MODEL, TENSORS, read_run, write_found
from newfound.discovery.trace import TRACE, Trace
from newfound.errors import InputError
from newfound.functional.calibration import Logistic
from newfound.functional.counting import Errors
from newfound.functional.rehearsal import Expected, Rehearsal, Trial, Way
from newfound.networks.adapter import Adapter
from newfound.networks.model import Model, Pretrained, Statistics
from newfound.networks.pretrained import PretrainedBackbone, load_pretrained
from newfound.networks.resnet import SmallResNet
from newfound.training.checkpoint import load_checkpoint
from newfound.training.loop import fit, optimiser
from newfound.types import seeded
from newfound.vision import vision
from tests.commands import newfound
from tests.discovery.made import FIRST, KNOWN, SECOND, THIRD, add_edits
from tests.discovery.test_storage import make_whole
from tests.training.test_loop import TRAINING, make_data, make_learner

DEEP, COLOURS = "[" * 100_000, ([0.5] * 3, [0.25] * 3)
WRONG = [None, True, "", "x", "\ud800", -1, 0, 1, 2.5, -1e9, 1e308, math.nan, math.inf, 10**30, [], [[]], {}, {"a": 1}]
"""What may stand where something else should."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run with edits, in which nothing is left out, and models that know two classes: of our own network, and of one
    that others have taught.
    """
    place = tmp_path_factory.mktemp("sound")
    whole = make_whole()
    fit = Fit(whole.features.clone(), whole.features.norm(dim=1), whole.clusters.centres.clone())
    calibration = whole.calibration._replace(outlier=Logistic(2.0, -1.0))
    write_found(replace(whole, fit=fit, calibration=calibration), place / "run")
    said = [Edit("merge", (FIRST, SECOND)), Edit("rename", (THIRD,), names=("sea pen",), by="Ada", at="today")]
    add_edits(place / "run", [*said, Edit("move", (FIRST,), (1, 2)), Edit("undo")])
    with seeded("damaged"):
        network = SmallResNet(1, 2)
        statistics = Statistics(torch.rand(2, 8), torch.eye(8), torch.tensor([7, 5]))
        head = torch.nn.Linear(8, 2)
        eye = PretrainedBackbone("test_resnet", vision("timm").create_model("test_resnet", num_classes=0), 32, *COLOURS)
        seen = Statistics(torch.rand(2, eye.dim), torch.eye(eye.dim), torch.tensor([7, 5]))
        adapter = Adapter(eye.dim, 3, hidden=4)
    trials, expected = (Trial(Way("own", 0.3, "spacing", "head"), (0.5,)),), Expected(0.5, 0.25, 0.75, 4, 0.125)
    counting, both = (Errors(0.5, -0.5, 0.25),), (expected, expected)
    rehearsal = Rehearsal(7, 3, trials, trials, *both, "few", counting, trials, *both)
    assert all(rehearsal)  # every field holds something that can be damaged
    own = Model(network, 8, 1, ("cat", "dog"), head=head, known=statistics, calibration=calibration)
    replace(own, rehearsal=rehearsal).save_pretrained(place / "model")
    among = Statistics(seen.means[:, :3].clone(), torch.eye(3), seen.counts.clone())
    Model(adapter, 32, 3, ("cat", "dog"), known=among, pretrained=Pretrained(eye, seen)).save_pretrained(place / "eye")
    return place


def places(value, path=()):
    """Every place in what JSON holds, of long lists the first and the last."""
    yield path
    if isinstance(value, dict | list):
        inner = [*(value.items() if isinstance(value, dict) else enumerate(value))]
        for name, item in inner if len(inner) < 20 else [inner[0], inner[-1]]:
            yield from places(item, (*path, name))


def change(value, path, new):
    """A copy in which something else stands at a place; `del` takes it away, `twice` has it twice."""
    value = copy.deepcopy(value)
    if not path:
        return new
    inner = value
    for name in path[:-1]:
        inner = inner[name]
    if new == "del":
        del inner[path[-1]]
    elif new == "twice":
        if isinstance(inner, list):
            inner.append(inner[path[-1]])
        elif isinstance(inner[path[-1]], list):
            inner[path[-1]] = 2 * inner[path[-1]]
    else:
        inner[path[-1]] = new
    return value


def damaged_json(path):
    """Texts in place of a JSON file's."""
    value = json.loads(path.read_text())
    for place in places(value):
        for new in [*WRONG, *(("del", "twice") if place else ())]:
            yield json.dumps(change(value, place, new)).encode(errors="surrogatepass")
    yield DEEP.encode()
    yield path.read_bytes().replace(b"{", b'{"format": 1, "format": 2, ', 1)


def damaged_lines(path):
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        value = json.loads(line)
        for place in places(value):
            for new in [*WRONG[number::2], *(("del", "twice") if place else ())]:
                other = [*lines[:number], json.dumps(change(value, place, new)), *lines[number + 1 :]]
                yield ("\n".join(other) + "\n").encode(errors="surrogatepass")
        yield "\n".join([*lines[:number], DEEP, ""]).encode()


def damaged_tensor(tensor):
    if not tensor.ndim:
        yield from (tensor[None], tensor.float() * math.nan)
        return
    yield from (tensor[:0], torch.cat([tensor, tensor]), tensor[None], tensor.double(), tensor.to(torch.int32))
    yield from (tensor.flatten()[:1], tensor.bool(), -tensor.long() - 1, tensor.float() * math.nan)
    if tensor.is_floating_point() and tensor.numel():
        for bad in (math.nan, math.inf):
            yield tensor.clone().index_fill_(0, torch.tensor([0]), bad)
    elif tensor.numel() and tensor.dtype == torch.int64:
        yield from (tensor + 10**6, torch.full_like(tensor, -1), torch.full_like(tensor, 2**62), tensor * 0)


def damaged_tensors(path):
    """Safetensors files in place of one: each tensor gone, or another."""
    yield from damage_tensors(path, 12)


def damaged_ends(path):
    """The same of a large network, whose tensors are much alike: some at its ends, and what BatchNorm measured."""
    yield from damage_tensors(path, 3)
    tensors = load_file(path)
    measured = next(name for name in tensors if name.endswith("running_var"))
    for new in (-tensors[measured], tensors[measured].half()):
        save_file(tensors | {measured: new}, path.with_name("other"))
        yield path.with_name("other").read_bytes()
    path.with_name("other").unlink()


def some(damage):
    """Every fourth of these: a network of others takes longer to build."""
    return lambda path: itertools.islice(damage(path), 0, None, 4)


def damage_tensors(path, ends):
    tensors = load_file(path)
    header = int.from_bytes(path.read_bytes()[:8], "little")
    about = json.loads(path.read_bytes()[8 : 8 + header]).get("__metadata__")
    for name in [*tensors][:ends] + [*tensors][-ends:]:
        for new in [None, *damaged_tensor(tensors[name])]:
            other = {key: tensor for key, tensor in tensors.items() if key != name}
            save_file(other | ({} if new is None else {name: new.contiguous()}), path.with_name("other"), about)
            yield path.with_name("other").read_bytes()
    path.with_name("other").unlink()


def damaged_bytes(path, draw):
    """A file cut off, lengthened, and with bits turned."""
    content = path.read_bytes()
    for _ in range(12):
        yield content[: draw.randrange(len(content))]
        flipped = bytearray(content)
        for _ in range(draw.choice([1, 1, 8])):
            flipped[draw.randrange(min(len(content), draw.choice([16, 400, 10**9])))] ^= 1 << draw.randrange(8)
        yield bytes(flipped)
    yield from (b"", content + b"more", content * 2, bytes(len(content)))


def finite(*tensors):
    return all(tensor is None or tensor.isfinite().all() for tensor in tensors)


def check_model(model):
    """What is true of every model, said without the schema."""
    assert len({*model.classes}) == len(model.classes)
    assert all(isinstance(name, str) for name in model.classes)
    assert 1 <= model.size <= 2**14
    assert model.channels in (1, 3)
    assert finite(*model.backbone.state_dict().values())
    if model.head is not None:
        assert model.head.weight.shape == (len(model.classes), model.backbone.dim)
    if model.known is not None:
        means, covariance, counts = model.known
        assert means.shape == (len(model.classes), model.backbone.dim)
        assert covariance.shape == (model.backbone.dim,) * 2
        assert finite(*model.known)
        assert (counts >= 0).all()
        assert len(counts) == len(model.classes)
    if model.rehearsal is not None:
        trials = (*model.rehearsal.backbones, *model.rehearsal.trials, *model.rehearsal.apart)
        assert all(isinstance(trial.way.method, str) and 0 <= trial.mean <= 1 for trial in trials)
        ways = itertools.product((True, False), repeat=2)
        told = [model.rehearsal.expected(mixed=mixed, counted=counted) for mixed, counted in ways]
        assert all(each is None or 0 <= each.at(9).accuracy <= 1 for each in told)
    ours = isinstance(model.backbone, SmallResNet)
    x = torch.rand(2, *((3, 8, 8) if ours else (model.backbone.inputs,)))
    if model.pretrained is not None:
        x = model.pretrained.backbone(torch.rand(2, 3, 32, 32))
        assert finite(x, *model.pretrained.statistics or ())
        assert x.shape[1] == model.backbone.inputs
        assert all(weight.dtype.is_floating_point for weight in model.pretrained.backbone.parameters())
    z = model.backbone(x).z
    assert z.shape == (2, model.backbone.dim)
    assert finite(z)


def check_run(folder):
    """What is true of every run, said without the schema."""
    found, edits, _ = read_run(folder)
    n, clusters, now = len(found), len(found.clusters.centres), classes(found, edits)
    check_model(found.model)
    assert n == len(found.listing) == len(found.clusters.assignment) > 0
    assert found.features.shape[1] == found.clusters.centres.shape[1] == found.model.backbone.dim
    assert finite(found.features, found.clusters.centres)
    assert 0 <= found.clusters.assignment.min() <= found.clusters.assignment.max() < clusters
    assert clusters == len(found.clusters.sizes) == len({*found.numbers}) == len(found.names)
    assert (found.clusters.sizes >= 0).all()
    assert min(found.numbers) >= 1
    assert -1 <= found.threshold <= 2
    assert isinstance(found.clusters.unit, bool)
    assert {*found.known} <= {*KNOWN}
    assert found.truth is None or len(found.truth) == n
    assert all(0 <= row < n and 0 <= other < n and row != other for row, other in found.duplicates.items())
    assert all(0 <= row < n and image.dtype == torch.uint8 for row, image in found.thumbnails.items())
    assert all(box is None or (math.isfinite(sum(box)) and min(box[2:]) >= 0) for box in found.listing.boxes)
    assert all(isinstance(name, str) for name in (*found.listing.names, *found.listing.groups, *found.facts.values()))
    assert all(math.isfinite(value) for row in found.history for value in row.values())
    assert all(math.isfinite(value) for line in found.calibration for value in line or ())
    if found.fit is not None:
        assert finite(*found.fit)
        assert len(found.fit.along) == len(found.fit.beside) == n
        assert found.fit.centres.shape == (clusters, found.fit.along.shape[1])
    assert found.way is None or (isinstance(found.way.describe(), str) and found.way.shrink >= 0)
    assert found.expected is None or 0 <= found.expected.at(9).accuracy <= 1
    assert found.count is None or found.count.known <= found.count.classes
    assert {*now.assignment.tolist()} <= {*now.names}
    assert all(isinstance(name, str) and name.strip() for name in now.names.values())
    if found.moments is not None:
        trace = Trace.load(folder)
        assert len(trace.labels) == len(trace.after.rows) == len(trace.after.latents)
        assert not len(trace.labels) or 0 <= trace.labels.min() <= trace.labels.max() < len(trace.classes)


RUN = {DISCOVERY: damaged_json, EDITS: damaged_lines, TENSORS: damaged_tensors, TRACE: damaged_tensors}
INNER = {"model.json": damaged_json, "model.safetensors": damaged_tensors}
SEEING = {name: some(how) for name, how in INNER.items()} | {"trunk.safetensors": damaged_ends}
FILES = (
    [("run", name, how, check_run) for name, how in RUN.items()]
    + [("run", f"{MODEL}/{name}", how, check_run) for name, how in INNER.items()]
    + [("model", name, how, lambda folder: check_model(Model.from_pretrained(folder))) for name, how in INNER.items()]
    + [("eye", name, how, lambda folder: check_model(Model.from_pretrained(folder))) for name, how in SEEING.items()]
)


@pytest.mark.parametrize(("folder", "name", "damage", "check"), FILES, ids=[f"{each[0]}-{each[1]}" for each in FILES])
def test_a_damaged_file_is_refused_by_its_name_or_read_as_what_can_be(sound, tmp_path, folder, name, damage, check):
    shutil.copytree(sound / folder, tmp_path / folder)
    path, refused = tmp_path / folder / name, []
    mutations = [*damage(path), *damaged_bytes(path, random.Random(name))]
    for mutation in mutations:
        path.write_bytes(mutation)
        try:
            check(tmp_path / folder)
        except InputError as error:
            refused.append(str(error))
    assert all(str(tmp_path / folder) in said and len(said) < 1000 for said in refused)
    assert len(mutations) / 4 < len(refused) <= len(mutations)


def test_a_run_from_before_a_rehearsal_was_kept_as_values_is_read_and_its_text_shown(sound, tmp_path):
    shutil.copytree(sound / "run", tmp_path / "run")
    path = tmp_path / "run" / DISCOVERY
    about = json.loads(path.read_text())
    del about["way"], about["expected"]
    text = "Rehearsal on 3 of 6 known classes at a time, hidden (mean accuracy, %);  48.7  a; b"
    path.write_text(json.dumps(about | {"facts": {"rehearsal": text, "expected accuracy": "?"}}))
    found, edits, _ = read_run(tmp_path / "run")
    assert (found.way, found.expected) == (None, None)
    shown = page(classes(found, edits))
    assert (shown.rehearsed, shown.expected, shown.facts["rehearsal"]) == ({}, "", text)


@pytest.mark.parametrize(
    ("where", "new", "told"),
    [
        ("way", {"backbone": "x"}, "way is without shrink"),
        ("way", {"backbone": 1, "shrink": 0, "method": "x", "reading": "x"}, "way.backbone is 1; needed: text"),
        ("expected", [0.5, 0.4], "expected is a list of 2"),
        ("expected", [0.5, 0.4, 7, 4, 0], r"expected\[2\] is 7; needed: a number from 0 to 1"),
        ("threshold", math.nan, "NaN"),
        ("threshold", 7, "threshold is 7; needed: a number from -1 to 2"),
        ("known", ["cat", *map(str, range(49))], "known is .*; needed: some of the model's classes"),
        ("numbers", [1, 2, 3, 3, 5], "numbers is .*; needed: each once"),
        ("names", ["a"], "boxes is of 44 images; needed: 1"),
        ("duplicates", {"3": 99}, "duplicates is 3: 99; needed: rows below 44"),
        ("proposed", [1], "proposed is .*; needed: numbers of new classes"),
        ("proposed", [99], "proposed is .*; needed: numbers of new classes"),
    ],
)
def test_nonsense_in_a_run_is_refused_with_what_and_where(sound, tmp_path, where, new, told):
    shutil.copytree(sound / "run", tmp_path / "run")
    path = tmp_path / "run" / DISCOVERY
    path.write_text(json.dumps(json.loads(path.read_text()) | {where: new}))
    with pytest.raises(InputError, match=rf"discovery\.json is damaged: .*{told}.* Copy the run again"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("where", "new", "told"),
    [
        ("apart", [{}], r"rehearsal\.apart\[0\] is without backbone; needed: all of it"),
        ("apart", 3, r"rehearsal\.apart is 3; needed: a list"),
        ("trials", [Way("own", 0.3, "spacing", "head")._asdict() | {"scores": []}], "needed: one of 1 at least"),
        ("alone", [0.5, 0.25, 0.75, 0, 0.125], r"rehearsal\.alone\[3\] is 0; needed: a whole number from 1"),
    ],
)
def test_nonsense_in_a_models_rehearsal_is_told_of_the_file_that_it_stands_in(sound, tmp_path, where, new, told):
    shutil.copytree(sound / "model", tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"rehearsal": about["rehearsal"] | {where: new}}))
    with pytest.raises(InputError, match=rf"model\.json is damaged: .*{told}"):
        Model.from_pretrained(tmp_path / "model")


def test_a_rehearsal_from_before_ways_were_tried_apart_is_read(sound, tmp_path):
    shutil.copytree(sound / "model", tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    about = json.loads(path.read_text())
    del about["rehearsal"]["apart"]
    path.write_text(json.dumps(about))
    assert Model.from_pretrained(tmp_path / "model").rehearsal.apart == ()


def test_damaged_weights_of_others_are_refused_by_their_name(tmp_path):
    path, name, draw = tmp_path / "net.safetensors", "test_resnet", random.Random("weights")
    weights = vision("timm").create_model(name).state_dict()
    save_file(weights, path)
    first, content = next(iter(weights)), path.read_bytes()
    for bad in (math.nan, math.inf):
        save_file(weights | {first: weights[first] * bad}, tmp_path / "bad")
        path.write_bytes((tmp_path / "bad").read_bytes())
        with pytest.raises(InputError, match=rf"{path}.*NaN or infinite"):
            load_pretrained(name, weights=path)
    words = [b"", b"{}", b"\x80\x04.", b"PK\x03\x04", content[:50], content[:-3], content[8:], os.urandom(999)]
    for mutation in [*words, *(content[: draw.randrange(len(content))] for _ in range(5))]:
        for place in (path, tmp_path / "net.pt"):
            place.write_bytes(mutation)
            with pytest.raises(InputError, match=str(place)):
                load_pretrained(name, weights=place)
    for other in ({}, {first: weights[first]}, [1], 3, None, "text", {"state_dict": 3}):
        torch.save(other, tmp_path / "net.pt")
        with pytest.raises(InputError, match=str(tmp_path / "net.pt")):
            load_pretrained(name, weights=tmp_path / "net.pt")


def damaged_headers(path):
    """A checkpoint in place of one, with other words in its header."""
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["newfound"])
    tensors = load_file(path)
    for place in places(about):
        for new in [*WRONG, *(("del", "twice") if place else ())]:
            text = json.dumps(change(about, place, new)).encode(errors="replace").decode()
            save_file(tensors, path.with_name("other"), {"newfound": text})
            yield path.with_name("other").read_bytes()
    path.with_name("other").unlink()


@pytest.mark.parametrize("how", [damaged_headers, damaged_tensors], ids=["header", "tensors"])
def test_a_damaged_checkpoint_is_refused_by_its_name_or_gone_on_from(tmp_path, how):
    path, training = tmp_path / "checkpoint.safetensors", replace(TRAINING, epochs=2)
    fit(make_learner(), make_data(), training, seed=1, device="cpu", checkpoint=path)
    mutations, refused = [*how(path), *damaged_bytes(path, random.Random("checkpoint"))], []
    for mutation in mutations:
        path.write_bytes(mutation)
        learner = make_learner()
        try:
            epoch, rows = load_checkpoint(path, learner, optimiser(learner, training), 1, training)
        except InputError as error:
            refused.append(str(error))
        else:
            assert epoch == len(rows) <= 2
            assert finite(*learner.parameters())
            assert all(math.isfinite(value) for row in rows for value in row.values())
    assert all(str(path) in said and len(said) < 2000 for said in refused)
    assert len(mutations) / 4 < len(refused) <= len(mutations)


@pytest.mark.processes
def test_damage_ends_a_command_with_a_sentence_and_the_code_2(sound, tmp_path):
    shutil.copytree(sound / "run", tmp_path / "run")
    shutil.copytree(sound / "model", tmp_path / "model")
    shutil.copytree(sound / "model", tmp_path / "told")
    path = tmp_path / "told" / "model.json"
    path.write_text(path.read_text().replace('"apart": [', '"apart": [{}, ', 1))
    for path in (tmp_path / "run" / DISCOVERY, tmp_path / "model" / "model.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "one.png").write_bytes(b"not looked at")
    commands = (
        ("report", "run"),
        ("export", "run", "--to", "csv", "-o", "out.csv"),
        ("predict", "model", "images", "-o", "out.csv"),
        ("discover", "--model", "told", "--unlabelled", "images", "-o", "next"),
    )
    for words in commands:
        done = newfound(*words, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "damaged" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.csv").exists()
