"""A run that was stopped goes on as if it had not been.

One safetensors file: the learner's state, the optimiser's tensors and, in the header, seed, training, the rows of
finished epochs and, in half precision, how losses are scaled, as JSON. No generator state, since every draw is a
function of seed, epoch and step.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from newfound import files
from newfound.errors import InputError
from newfound.schema import anything, check_finite, each, needs, number, record, table
from newfound.types import Training

ABOUT = record(
    {"seed": anything, "training": anything, "rows": each(table(number())), "scaler": anything}, optional=("scaler",)
)
"""What the header says; seed and training are compared with those asked for."""


def save_checkpoint(
    path: Path,
    learner: nn.Module,
    optimizer: torch.optim.Optimizer,
    seed: int,
    training: Training,
    rows: list[dict[str, float]],
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Write the state after an epoch, whole or not at all."""
    tensors = {f"learner.{name}": tensor for name, tensor in learner.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{key}": value for key, value in state.items() if value is not None}
    about = {"seed": seed, "training": training.settings(), "rows": rows}
    if scaler is not None:
        about["scaler"] = scaler.state_dict()  # a few numbers
    files.write_tensors(path, tensors, {"newfound": json.dumps(about)})


def count_epochs(path: Path | None) -> int:
    """How many epochs a checkpoint holds; 0 where there is none, or none that `load_checkpoint` would take."""
    try:
        with safe_open(path, "pt") as file:
            return len(json.loads(file.metadata()["newfound"])["rows"])
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, RecursionError):
        return 0


def load_checkpoint(
    path: Path,
    learner: nn.Module,
    optimizer: torch.optim.Optimizer,
    seed: int,
    training: Training,
    scaler: torch.amp.GradScaler | None = None,
) -> tuple[int, list[dict[str, float]]]:
    """Restore the state; returns the epoch to go on with and the rows so far."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["newfound"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        ABOUT(about, "")
        needs(len(about["rows"]) <= training.epochs, "rows", len(about["rows"]), f"at most {training.epochs}")
        _check_learner(tensors, learner)
        state = _read_state(tensors, optimizer)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, RecursionError) as error:
        said = str(error)[:500]
        raise InputError(f"The checkpoint {path} cannot be read ({said}). Delete it to begin anew.") from error
    if (about["seed"], about["training"]) != (seed, training.settings()):
        raise InputError(
            f"The checkpoint {path} is of another run: seed {about['seed']}, {about['training']}; "
            f"asked for seed {seed}, {training.settings()}. "
            "Resume with the same settings, or begin anew with --overwrite."
        )
    try:
        learner.load_state_dict({n.removeprefix("learner."): t for n, t in tensors.items() if n.startswith("learner.")})
    except RuntimeError as error:
        raise InputError(
            f"The checkpoint {path} does not fit this method. Delete it to begin anew. ({str(error)[:500]})"
        ) from error
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    if scaler is not None and about.get("scaler"):  # it may have been written in full precision
        scaler.load_state_dict(about["scaler"])
    return len(about["rows"]), about["rows"]


def _check_learner(tensors: dict[str, torch.Tensor], learner: nn.Module) -> None:
    """Refuse weights that are no numbers, or of another type: they would be taken as they are, and learnt from."""
    learnt = {name for name, _ in learner.named_parameters()}
    for name, own in learner.state_dict().items():
        if (tensor := tensors.get(f"learner.{name}")) is not None:
            needs(tensor.dtype == own.dtype, name, tensor.dtype, str(own.dtype))
            if name in learnt:  # a method's buffers may be without end
                check_finite(tensor, name)


def _read_state(
    tensors: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, torch.Tensor]]:
    """The optimiser's tensors, by the place of their parameter; each as large as that, or one number."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".")
            needs(0 <= int(index) < len(parameters), name, index, f"a place below {len(parameters)}")
            shapes = (parameters[int(index)].shape, torch.Size([]))
            needs(tensor.shape in shapes, name, list(tensor.shape), f"the shape {list(shapes[0])}")
            check_finite(tensor, name)
            state.setdefault(int(index), {})[key] = tensor
    return state
