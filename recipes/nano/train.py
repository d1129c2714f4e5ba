"""Train a model of this recipe in a given time.

    PYTHONPATH=. python3 -m recipes.nano.train --out DIR --minutes 13 [--size nano|draft] ...

DIR receives log.jsonl (a line every 20 seconds), the state (state-*.safetensors, every three
minutes and at the end) and at the end a checkpoint. The clock starts with the process and covers
compilation; the checkpoint takes some seconds more. With --gpus N, N processes each train on rows
of their own and average their gradients.
"""

import argparse
import functools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ContextManager  # noqa: UP035 (the abstract one is no type of nullcontext)

import torch
from torch import Tensor

from recipes.nano.batches import DeviceBatches
from recipes.nano.data import RowFeed, Rows, heldout_rows, pack, training_examples
from recipes.nano.export import load_state, save_state, write_checkpoint
from recipes.nano.fake_quant import ExpertRounding
from recipes.nano.losses import BatchLoss, batch_loss
from recipes.nano.model import TrainingModel, parameter_count, token_losses
from recipes.nano.optimiser import make_optimisers
from recipes.nano.ranks import Ranks
from recipes.nano.schedule import learning_rate
from recipes.nano.sizes import SIZES, model_config
from recipes.nano.vocabulary import special_token_ids

LOG_SECONDS = 20.0
EVALUATE_SECONDS = 60.0
SAVE_SECONDS = 180.0
SYNC_STEPS = 4
"""How far the process may run ahead of the GPU, so that the clock means something."""

CLIP_NORM = 1.0
WEIGHT_DECAY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says; see `parse`."""

    out: Path
    size: str
    minutes: float
    batch_rows: int
    lr: float
    optimiser: str
    seed: int
    workers: int
    gpus: int
    compiled: bool
    qat_from: float
    heldout_examples: int
    task_weights: Mapping[str, float]
    initial: Path | None
    device: torch.device


def parse() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train rose-nano or its draft model.")
    parser.add_argument("--out", type=Path, required=True, help="folder for log and results")
    parser.add_argument("--minutes", type=float, default=13.0, help="from start to finish")
    parser.add_argument("--size", choices=sorted(SIZES), default="nano")
    parser.add_argument("--batch-rows", type=int, default=64, help="rows of 1024 tokens a GPU")
    parser.add_argument("--lr", type=float, default=2e-3, help="at its peak")
    parser.add_argument("--optimiser", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data")
    parser.add_argument("--workers", type=int, default=14, help="processes a GPU that make data")
    parser.add_argument("--gpus", type=int, default=1, help="or processes on a CPU")
    parser.add_argument("--compile", action="store_true", help="torch.compile the layers")
    parser.add_argument("--qat-from", type=float, default=0.75, help="MXFP4 from this part on")
    parser.add_argument("--heldout", type=int, default=1000, help="examples for the log")
    parser.add_argument("--task-weights", type=json.loads, default={}, help='{"recall": 2.0}')
    parser.add_argument("--init", type=Path, help="folder with a state to start from")
    parser.add_argument("--device", type=torch.device, default=None, help="default: cuda if any")
    words = parser.parse_args()
    return Options(
        out=words.out,
        size=words.size,
        minutes=words.minutes,
        batch_rows=words.batch_rows,
        lr=words.lr,
        optimiser=words.optimiser,
        seed=words.seed,
        workers=words.workers,
        gpus=words.gpus,
        compiled=words.compile,
        qat_from=words.qat_from,
        heldout_examples=words.heldout,
        task_weights=words.task_weights,
        initial=words.init,
        device=words.device or torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )


def make_rows(task_weights: Mapping[str, float], seed: int) -> Iterator[Rows]:
    """The endless rows of one worker."""
    return pack(training_examples(seed, task_weights))


@dataclass
class Totals:
    """Losses since the last line of the log; sums stay on the device, so that none waits."""

    steps: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, loss: BatchLoss, norm: Tensor) -> None:
        """Count a step's losses."""
        self.steps += 1
        values = {"loss": loss.turn, "mtp": loss.mtp, "balance": loss.balance, "norm": norm}
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value.detach()

    def means(self) -> dict[str, float]:
        """The mean of each, rounded."""
        return {name: round(value.item() / self.steps, 4) for name, value in self.sums.items()}


class Trainer:
    """A model, its optimisers and the clock."""

    def __init__(self, options: Options, ranks: Ranks, device: torch.device, began: float) -> None:
        self.options = options
        self.ranks = ranks
        self.device = device
        self.began = began
        self.first_step = time.monotonic()
        torch.manual_seed(options.seed)
        config = model_config(options.size, special_token_ids())
        model = TrainingModel(config, mtp=options.size != "draft")
        if options.initial is not None:
            model.load_state_dict(load_state(options.initial))
        self.model = model.to(device)
        self.rounding = ExpertRounding(self.model)
        self.optimisers = make_optimisers(
            self.model, options.optimiser, lr=options.lr, weight_decay=WEIGHT_DECAY
        )
        self.token_losses = token_losses
        self.step = 0

    def compile(self, rows: Tensor) -> None:
        """Compile the layers; go on without if that fails."""
        for layer in self._layers():
            layer.compile(dynamic=False)
        self.token_losses = torch.compile(token_losses, dynamic=False)
        try:
            self.loss(rows).total.backward()
        except Exception as error:  # the compiler fails in many ways; none should cost the run
            self.say({"compile": "failed, going on without", "error": repr(error)[:2000]})
            for layer in self._layers():
                layer._compiled_call_impl = None
            self.token_losses = token_losses
        self.zero_gradients()

    def _layers(self) -> list[torch.nn.Module]:
        layers = list(self.model.layers)
        return layers if self.model.mtp is None else [*layers, self.model.mtp.layer]

    def loss(self, rows: Tensor) -> BatchLoss:
        """The losses of rows; on a GPU in bfloat16 where that is enough."""
        device = self.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            return batch_loss(self.model, rows, self.token_losses)

    def zero_gradients(self) -> None:
        """Forget all gradients."""
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)

    def progress(self) -> float:
        """The part of the training time that has passed, the same for all ranks."""
        end = self.began + 60 * self.options.minutes
        passed = (time.monotonic() - self.first_step) / max(end - self.first_step, 1e-9)
        return self.ranks.agree(passed)

    def advance(self, rows: Tensor, progress: float) -> tuple[BatchLoss, Tensor]:
        """One step; returns its losses and the norm of its gradients."""
        rate = learning_rate(self.options.lr, self.step, progress)
        with self.expert_weights(progress):
            loss = self.loss(rows)
            loss.total.backward()
        self.ranks.average_gradients(self.model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        self.zero_gradients()
        self.step += 1
        return loss, norm

    def expert_weights(self, progress: float) -> ContextManager[None]:
        """Exact at first, as they will be stored later on."""
        return self.rounding.rounded() if progress >= self.options.qat_from else nullcontext()

    def heldout(self, tasks: list[str], rows: Tensor, progress: float) -> dict[str, float]:
        """Mean loss of the assistant's tokens for each task."""
        sums: dict[str, list[float]] = {task: [0.0, 0.0] for task in tasks}
        size = self.options.batch_rows
        # With gradients, of no use here, and in batches of the usual size: another way would be
        # compiled anew.
        wanted = torch.arange(-(-len(rows) // size) * size, device=rows.device) % len(rows)
        padded = rows[wanted]
        with self.expert_weights(progress):
            for start in range(0, len(rows), size):
                losses, counts = self.loss(padded[start : start + size]).turn_of_row
                pairs = zip(losses.tolist(), counts.tolist(), strict=True)
                for task, (loss, count) in zip(tasks[start : start + size], pairs, strict=False):
                    sums[task][0] += loss
                    sums[task][1] += count
        return {task: round(loss / max(count, 1), 4) for task, (loss, count) in sums.items()}

    def say(self, line: Mapping[str, object]) -> None:
        """Add a line to the log, on the screen too."""
        if not self.ranks.first:
            return
        text = json.dumps({"elapsed": round(time.monotonic() - self.began, 1), **line})
        print(text, flush=True)
        with (self.options.out / "log.jsonl").open("a") as file:
            file.write(text + "\n")

    def state(self) -> dict[str, Tensor]:
        """The weights, on the CPU."""
        return {name: value.detach().cpu() for name, value in self.model.state_dict().items()}


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(trainer: Trainer, batches: DeviceBatches, tasks: list[str], heldout: Tensor) -> None:
    """Step until the time is over."""
    options = trainer.options
    totals = Totals()
    logged = evaluated = saved = trainer.first_step = time.monotonic()
    waited = 0.0
    while (progress := trainer.progress()) < 1:
        began = time.monotonic()
        rows = batches.take()
        waited += time.monotonic() - began
        loss, norm = trainer.advance(rows, progress)
        totals.add(loss, norm)
        if trainer.step % SYNC_STEPS == 0:
            synchronise(trainer.device)
        now = time.monotonic()
        if now - logged >= LOG_SECONDS:
            step_tokens = trainer.ranks.count * options.batch_rows * rows.shape[-1]
            trainer.say(
                {
                    "step": trainer.step,
                    **totals.means(),
                    "lr": float(f"{trainer.optimisers[0].param_groups[0]['lr']:.3g}"),
                    "tokens": trainer.step * step_tokens,
                    "tokens_per_s": round(totals.steps * step_tokens / (now - logged)),
                    "waiting_for_data": round(waited / (now - logged), 3),
                    "mxfp4": progress >= options.qat_from,
                    **memory(trainer.device),
                }
            )
            totals, waited, logged = Totals(), 0.0, now
        if trainer.ranks.first and now - evaluated >= EVALUATE_SECONDS:
            trainer.say({"heldout": trainer.heldout(tasks, heldout, progress)})
            evaluated = now
        if trainer.ranks.first and now - saved >= SAVE_SECONDS:
            save_state(trainer.state(), options.out)
            saved = now


def memory(device: torch.device) -> dict[str, float]:
    """The most that was allocated on a GPU, in GB."""
    if device.type != "cuda":
        return {}
    return {"peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 1)}


def run(rank: int, options: Options) -> None:
    """Train, save, export: what each rank does."""
    began = time.monotonic()
    make = functools.partial(make_rows, options.task_weights)
    first = rank * options.workers
    # Before anything touches CUDA: the workers are forks.
    feed = RowFeed(make, seed=options.seed, first=first, workers=options.workers)
    tasks, held = heldout_rows(options.seed, options.heldout_examples)
    device = torch.device(options.device.type, rank if options.device.type == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")
    ranks = Ranks(rank, options.gpus, device)
    trainer = Trainer(options, ranks, device, began)
    trainer.say({"parameters": parameter_count(trainer.model), "options": repr(options)})
    batches = DeviceBatches(feed, options.batch_rows, device)
    if options.compiled:
        trainer.compile(batches.take())
        trainer.say({"compile": "done"})
    heldout = batches.on_device(held)
    train(trainer, batches, tasks, heldout)
    feed.close()
    if ranks.first:
        finish(trainer, tasks, heldout)
    ranks.close()


def finish(trainer: Trainer, tasks: list[str], heldout: Tensor) -> None:
    """Write what the run was for."""
    options = trainer.options
    state = trainer.state()
    save_state(state, options.out)
    write_checkpoint(state, options.size, options.out)
    losses = trainer.heldout(tasks, heldout, 1.0)
    trainer.say({"heldout": losses, "final": True, "steps": trainer.step})


def main() -> None:
    """Train on one GPU, or on several."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.gpus == 1:
        run(0, options)
    else:
        torch.multiprocessing.spawn(run, args=(options,), nprocs=options.gpus)


if __name__ == "__main__":
    main()
