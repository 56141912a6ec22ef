"""Our agreement of clusters beside scikit-learn's: are the numbers the same, and how long do both take?

    python benchmarks/metrics.py

First the price of the import, which a page or a command that measures one table would pay; then milliseconds of
processor time, the best of three, on made classes and clusters of which seven in ten images agree.
"""

import resource
import time
from collections.abc import Callable

import torch

from newfound.functional.metrics import ari, nmi, silhouettes
from newfound.types import generator

SIZES = ((1000, 10), (10_000, 10), (50_000, 100))
FEATURES = ((1500, 8), (1500, 60), (2000, 150))
DIVISIONS = 8
"""So many ways to divide the same images: counting classes tries more."""


def best(measure: Callable[[], float]) -> tuple[float, float]:
    """What it says, and the least milliseconds it takes."""
    times = []
    for _ in range(3):
        began = time.process_time()
        value = measure()
        times.append(1000 * (time.process_time() - began))
    return value, min(times)


def say(what: str, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
    (one, own), (other, others) = best(ours), best(theirs)
    print(f"{what:<44} ours {own:8.1f} ms, theirs {others:8.1f} ms, apart by {abs(one - other):.0e}", flush=True)


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare_labels(n: int, classes: int) -> None:
    """NMI and ARI of classes and clusters."""
    random = generator("metrics", n, classes)
    truth = torch.randint(classes, (n,), generator=random)
    agrees = torch.rand(n, generator=random) < 0.7
    guess = truth.where(agrees, torch.randint(classes, (n,), generator=random))
    both, where = (truth.numpy(), guess.numpy()), f"{n} images of {classes} classes"
    say(f"NMI, {where}", lambda: nmi(truth, guess), lambda: float(normalized_mutual_info_score(*both)))
    say(f"ARI, {where}", lambda: ari(truth, guess), lambda: float(adjusted_rand_score(*both)))


def compare_features(n: int, classes: int) -> None:
    """Silhouettes of several ways to divide the same images."""
    random = generator("metrics", n, classes)
    several = [torch.randint(classes, (n,), generator=random) for _ in range(DIVISIONS)]
    x = (torch.randn(n, 64, generator=random) + 0.1 * several[0][:, None]).double()

    def theirs() -> float:
        return sum(float(silhouette_score(x.numpy(), labels.numpy())) for labels in several)

    say(f"silhouettes of {DIVISIONS} divisions, {n} of {classes}", lambda: sum(silhouettes(x, several)), theirs)


if __name__ == "__main__":
    before, began = memory(), time.process_time()
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

    print(f"import sklearn.metrics: {time.process_time() - began:.1f} s, {memory() - before:.0f} MB", flush=True)
    for size in SIZES:
        compare_labels(*size)
    for size in FEATURES:
        compare_features(*size)
