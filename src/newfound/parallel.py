"""The only file that knows of several processes."""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from newfound.errors import InputError


def world() -> tuple[int, int]:
    """This process's number and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def first() -> bool:
    """Whether this process is the one that writes files and talks, also before the others have been met."""
    return int(os.environ.get("RANK", "0")) == 0


def check_alone(instead: str) -> None:
    """Refuse processes that were started to train together; `instead` says what to do."""
    processes = max(world()[1], int(os.environ.get("WORLD_SIZE", "1")))
    if processes > 1:
        raise InputError(f"This is one of {processes} processes that train together. Needed: one. {instead}")


def part(rows: int) -> slice:
    """This process's share of that many rows."""
    rank, processes = world()
    return slice(rank * rows // processes, (rank + 1) * rows // processes)


class _Gather(torch.autograd.Function):
    """All rows of all processes, in the order of ranks.

    Every process goes on to compute the same loss of the whole batch, so the gradient of its own rows is whole
    already; it is multiplied by the number of processes because data-parallel training divides by it.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        rank, processes = world()
        parts = [torch.empty_like(own) for _ in range(processes)]
        dist.all_gather(parts, own.contiguous())
        ctx.own = slice(rank * len(own), (rank + 1) * len(own))
        ctx.processes = processes
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0][ctx.own] * ctx.processes


def gather(own: Tensor) -> Tensor:
    """The rows of every process (equally many each), with gradient; the rows themselves when there is one process."""
    return own if world()[1] == 1 else _Gather.apply(own)


@torch.no_grad()
def average(module: nn.Module) -> None:
    """Make floating buffers (BatchNorm's running statistics) the mean over processes."""
    if (processes := world()[1]) > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= processes


@torch.no_grad()
def broadcast(module: nn.Module) -> None:
    """Give every process the first one's parameters and buffers."""
    if world()[1] > 1:
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.data, 0)


def leave() -> None:
    """End the program where several processes train together; with one alone, do nothing.

    Not before all have come here: who leaves early cuts the others' connections. And at once, as multiprocessing ends
    its own processes: a thread of gloo's may have to let go of its last collective yet, needs the interpreter for that,
    and aborts the process where that is shutting down (one exit in seven, on a busy machine).
    """
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
