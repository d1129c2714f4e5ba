"""All-reduce over the GPUs of one host: one process each, through torch.distributed."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import ProcessException, spawn

from rose.bench.results import RooflineCell
from rose.bench.roofline import cuda_seconds, host_seconds

ROWS = (1, 32, 128, 8192)
"""Tokens of a step."""

HIDDEN = 2880

CALLS = 20
"""All-reduces a sample, one after the other."""

WARMUP = 3


def measure_links(device: str, repeat: int) -> Iterator[RooflineCell | str]:
    """All-reduce over 2, 4, ... of this host's GPUs; nothing where there are no two.

    Yields:
        Cells, or one line on why a count of GPUs could not be measured.
    """
    gpus = torch.cuda.device_count() if device == "cuda" else 1
    ranks = 2
    while ranks <= gpus:
        try:
            yield from measure_all_reduce(device, ranks, repeat)
        except (RuntimeError, ProcessException) as error:
            reason = str(error).strip().splitlines()[-1]
            yield f"all-reduce over {ranks}: cannot run here: {reason}"
        ranks *= 2


def measure_all_reduce(
    device: str, ranks: int, repeat: int, rows: tuple[int, ...] = ROWS
) -> list[RooflineCell]:
    """Time all-reduce of [rows, 2880] in bfloat16, in processes of their own.

    NVLink multicast stays off: `NCCL_NVLS_ENABLE=0`.

    Args:
        device: "cuda" (NCCL), or "cpu" (Gloo), where it shows no more than that it works.
        ranks: processes, and GPUs.
        repeat: samples; each is the slowest rank's.
        rows: of each message.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cells.json"
        args = (device, ranks, repeat, rows, _free_port(), str(out))
        spawn(_rank, args=args, nprocs=ranks)  # type: ignore[no-untyped-call]
        return msgspec.json.decode(out.read_bytes(), type=list[RooflineCell])


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _rank(
    rank: int,
    device: str,
    ranks: int,
    repeat: int,
    rows: tuple[int, ...],
    port: int,
    out: str,
) -> None:
    """One process: time every message; rank 0 writes the cells."""
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # NCCL reads it when the group is made
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=ranks)
    try:
        cells = [_message(count, device, ranks, repeat) for count in rows]
        if rank == 0:
            Path(out).write_bytes(msgspec.json.encode(cells))
    finally:
        dist.destroy_process_group()


def _message(rows: int, device: str, ranks: int, repeat: int) -> RooflineCell:
    message = torch.zeros(rows, HIDDEN, dtype=torch.bfloat16, device=device)
    run = _captured(message) if device == "cuda" else lambda: _reduce(message)
    timer = cuda_seconds if device == "cuda" else host_seconds
    samples = []
    for number in range(WARMUP + repeat):
        dist.barrier()
        seconds = timer(run)
        if number >= WARMUP:
            samples.append(seconds)
    slowest = torch.tensor(samples, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    name = f"all-reduce {rows}x{HIDDEN} bf16 over {ranks}"
    return RooflineCell(name=name, unit="call", amount=float(CALLS), samples=slowest.tolist())


def _reduce(message: Tensor) -> None:
    for _ in range(CALLS):
        dist.all_reduce(message)


def _captured(message: Tensor) -> Callable[[], object]:
    """A CUDA graph of the calls: launched from Python, small ones would wait for the host."""
    dist.all_reduce(message)  # connects the ranks, which must not be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _reduce(message)
    return graph.replay
