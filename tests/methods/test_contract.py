"""Every method, alone and with Spacing added, answers the same questions."""

import pytest
import torch

from newfound.errors import InputError
from newfound.methods import METHODS, parse
from newfound.methods.base import Method, Sum
from newfound.methods.spacing import spacing_of
from newfound.networks.model import Model
from newfound.networks.resnet import SmallResNet
from newfound.networks.similarity import PairHead, PairNet
from newfound.types import Batch, Latents, Losses, Now, Problem, Survey, generator, seeded
from tests.methods.names import distinct, staged, with_spacing

DIM, KNOWN, NOVEL, ROWS = 16, 3, 4, 60
CASES = staged([*distinct(), *with_spacing()])
KINDS = {"mixed": (8, 12), "only unlabelled": (0, 20), "only labelled": (20, 0)}
BATCHES = [(*case, kind) for case in CASES for kind in KINDS if case[1] or kind == "only unlabelled"]
NOW = Now(seed=1, epoch=3, epochs=10, step=2, steps=5)


def make_model() -> Model:
    with seeded("contract"):
        model = Model(SmallResNet(width=2, stride=2), 8, 3, ("a", "b", "c"), head=torch.nn.Linear(DIM, KNOWN))
        model.similarity = PairNet(SmallResNet(width=2, stride=2), PairHead(DIM))
        return model


def make_survey(labelled: bool) -> Survey:
    labels = torch.arange(ROWS) % KNOWN if labelled else torch.full((ROWS,), -1)
    labels[ROWS // 2 :] = -1
    return Survey(torch.rand(ROWS, DIM, generator=generator("survey")), labels)


def make_method(name: str, labelled: bool, mixed: bool = False, novel: int = NOVEL) -> Method:
    """A method that has been through its start."""
    with seeded("method"):
        method = parse(name).build(Problem(DIM, KNOWN, novel, labelled, ROWS, mixed), make_model())
    for epoch in range(NOW.epoch + 1):
        method.before_epoch(lambda: make_survey(labelled), NOW._replace(epoch=epoch, step=0))
    return method.train()


def make_batch(method: Method, kind: str, now: Now = NOW) -> tuple[list[Latents], Batch]:
    """Latents that ask for a gradient, as a backbone would give them."""
    labelled, unlabelled = KINDS[kind]
    random, n = now.random("batch"), labelled + unlabelled
    labels = torch.cat([torch.arange(labelled) % KNOWN, torch.full((unlabelled,), -1)])
    views = [torch.rand(n, 3, 8, 8, generator=random) for _ in range(2)]
    batch = method.prepare(Batch(views, labels, torch.randperm(ROWS, generator=random)[:n], {}), now)
    latents = [Latents(torch.rand(n, DIM, generator=random).requires_grad_()) for _ in batch.views]
    if method.reads_map:
        maps = [torch.rand(n, DIM // 2, 4, 4, generator=random).requires_grad_() for _ in latents]
        latents = [seen._replace(map=before) for seen, before in zip(latents, maps, strict=True)]
    return latents, batch


def step(method: Method, kind: str, now: Now) -> Losses:
    """One step of the loop, with a backbone that does not move."""
    latents, batch = make_batch(method, kind, now)
    losses = method(latents, batch, now)
    with torch.no_grad():
        method.after_step([Latents(view.z.detach()) for view in latents], batch, latents.__getitem__, now)
    return losses


def state_of(method: Method) -> Losses:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


def moved_by_hooks(method: Method) -> Losses:
    """The state without running statistics of BatchNorm, which alone `forward` may move."""
    running = ("running_mean", "running_var", "num_batches_tracked")
    return {name: tensor for name, tensor in state_of(method).items() if not name.endswith(running)}


def equal(a: Losses, b: Losses) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(("name", "labelled", "kind"), BATCHES)
def test_losses_are_finite_scalars_with_a_gradient(name, labelled, kind):
    method = make_method(name, labelled)
    latents, batch = make_batch(method, kind)
    losses = method(latents, batch, NOW)
    assert losses
    assert all(loss.shape == () and loss.isfinite() for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()
    assert latents[0].z.grad is not None
    assert latents[0].z.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", [name for name, labelled in CASES if labelled])
def test_where_answers_have_made_every_class_known_a_method_goes_on(name):
    method = make_method(name, labelled=True, mixed=True, novel=0)
    assert all(loss.isfinite() for loss in step(method, "mixed", NOW).values())
    latents, batch = make_batch(method, "mixed")
    torch.stack(list(method(latents, batch, NOW).values())).sum().backward()
    assert latents[0].z.grad is not None


@pytest.mark.parametrize(("name", "labelled", "kind"), BATCHES)
def test_forward_changes_no_state_and_repeats_itself(name, labelled, kind):
    method = make_method(name, labelled)
    latents, batch = make_batch(method, kind)
    before = moved_by_hooks(method)
    first, second = method(latents, batch, NOW), method(latents, batch, NOW)
    assert equal(first, second)
    assert equal(before, moved_by_hooks(method))


@pytest.mark.parametrize(("name", "labelled", "kind"), BATCHES)
def test_saved_loaded_and_going_on_equals_going_on(name, labelled, kind):
    going = make_method(name, labelled)
    step(going, kind, NOW)
    with seeded("another"):
        loaded = parse(name).build(Problem(DIM, KNOWN, NOVEL, labelled, ROWS), make_model()).train()
    loaded.load_state_dict(state_of(going))
    for now in (NOW._replace(step=3), NOW._replace(step=4)):
        assert equal(step(going, kind, now), step(loaded, kind, now))
    assert equal(state_of(going), state_of(loaded))
    assert going.log() == loaded.log()


@pytest.mark.parametrize(("name", "labelled"), [case for case in CASES if not case[1]])
def test_two_stages_refuse_a_labelled_row(name, labelled):
    method = make_method(name, labelled)
    latents, batch = make_batch(method, "mixed")
    with pytest.raises(ValueError, match="labelled row"):
        method(latents, batch, NOW)


@pytest.mark.parametrize(("name", "labelled"), CASES)
def test_a_method_trains_nothing_of_the_model_it_was_built_from(name, labelled):
    model = make_model()
    method = parse(name).build(Problem(DIM, KNOWN, NOVEL, labelled, ROWS), model)
    own = {tensor.data_ptr() for part in (model.backbone, model.head) for tensor in part.state_dict().values()}
    assert own.isdisjoint(tensor.data_ptr() for tensor in method.state_dict().values())


@pytest.mark.parametrize(("name", "labelled"), CASES)
def test_logits_are_of_all_classes_or_of_novel_ones_alone(name, labelled):
    method = make_method(name, labelled).eval()
    scores = method.logits(torch.rand(5, DIM, generator=generator("logits")))
    assert scores is None or scores.shape in {(5, NOVEL), (5, KNOWN + NOVEL)}


@pytest.mark.parametrize(("name", "labelled"), CASES)
def test_where_unlabelled_images_may_be_of_known_classes_too_there_is_an_output_for_each(name, labelled):
    method = make_method(name, labelled, mixed=True)
    before = moved_by_hooks(method)
    for kind in KINDS if labelled else ["only unlabelled"]:
        latents, batch = make_batch(method, kind)
        losses = method(latents, batch, NOW)
        assert losses
        assert all(loss.shape == () and loss.isfinite() for loss in losses.values())
        torch.stack(list(losses.values())).sum().backward()
        assert latents[0].z.grad.isfinite().all()
    assert equal(before, moved_by_hooks(method))
    scores, pile = method.eval().logits(torch.rand(5, DIM, generator=generator("logits"))), KNOWN + NOVEL
    beside = {0, KNOWN} if labelled else {0}  # a head of known classes alone beside that
    assert scores is None or scores.shape[1] - pile in beside
    spacing = spacing_of(method)  # the set that classes are read by; a finer one may stand beside it
    assert spacing is None or len(spacing.prototypes) == pile
    assert (spacing is None) == (parse(name).spacing is None)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        *((name, KNOWN) for name in ("pairs", "rs", "rs-il", "ncl", "uno", "dual", "openmix", "joint")),
        *((name, 0) for name in ("simgcd", "spacing")),
    ],
)
def test_in_a_mixed_pile_a_head_of_known_classes_alone_stays_beside_that_of_all(name, beside):
    scores = make_method(name, True, mixed=True).eval().logits(torch.rand(5, DIM, generator=generator("logits")))
    assert scores.shape == (5, beside + KNOWN + NOVEL)


def test_a_recipe_with_two_names_is_asked_once():
    assert METHODS["spacing"] is METHODS["spacing:swapped"]
    assert METHODS["dtc"] is METHODS["dtc:pi"]
    recipes = [METHODS[name] for name in distinct()]
    assert len({id(recipe) for recipe in recipes}) == len(recipes)
    assert all(any(recipe is one for one in recipes) for recipe in METHODS.values() if recipe.training.epochs)


def test_a_sum_refuses_a_loss_name_used_twice():
    method = Sum(make_method("pairs", True), make_method("pairs", True))
    latents, batch = make_batch(method, "mixed")
    with pytest.raises(ValueError, match="rename one of them"):
        method(latents, batch, NOW)


def test_a_sum_of_losses_is_the_losses_of_its_parts():
    parts = make_method("pairs", True), make_method("spacing", True)
    latents, batch = make_batch(parts[0], "mixed")
    apart = parts[0](latents, batch, NOW) | parts[1](latents, batch, NOW)
    assert equal(Sum(*parts)(latents, batch, NOW), apart)


def test_the_survey_is_asked_for_only_when_it_is_needed():
    method, asked = make_method("pairs+spacing", False), []
    method.before_epoch(lambda: asked.append(1), NOW)
    assert not asked


def test_an_unknown_method_is_refused_with_those_that_exist():
    with pytest.raises(InputError, match=r"no method called 'ps'.*pairs"):
        parse("pairs+ps")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rs+pairs", r"pairs has a head of its own.*What can: spacing, "),
        ("spacing+spacing:dcn", r"spacing comes after the method it is added to"),
        ("kmeans+spacing", r"kmeans trains nothing"),
        ("pairs+spacing+spacing:dcn", r"adds 2 methods to pairs; add one"),
    ],
)
def test_sums_that_cannot_be_trained_are_refused_by_name(name, said):
    with pytest.raises(InputError, match=said):
        parse(name)


@pytest.mark.parametrize("name", METHODS)
def test_what_may_join_another_learns_nothing_of_its_own(name):
    labelled = METHODS[name].labelled != "unused"
    assert not METHODS[name].joins or not list(make_method(name, labelled).parameters())


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_says_whether_its_method_reads_maps(name):
    assert METHODS[name].maps == make_method(name, METHODS[name].labelled != "unused").reads_map
