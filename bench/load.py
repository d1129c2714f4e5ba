"""What the start of an engine takes, stage by stage: from nothing to the first token.

    python bench/load.py FOLDER [--shape gpt-oss-20b] [--layers N] [--device cuda] [--alone]

A FOLDER without a config.json is filled first, by bench/random_checkpoint.py, and stays. --alone
also times the same reads and copies with nothing placed: the most that loading could reach.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# Everything else is imported when its stage is timed.
if TYPE_CHECKING:
    from rose.config import EngineConfig
    from rose.engine.engine import Engine

WRITER = Path(__file__).with_name("random_checkpoint.py")
PROMPT = list(range(100, 164))


class Stages:
    """Times stages, and prints them as a table."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, float, int]] = []

    @contextmanager
    def stage(self, name: str, nbytes: int = 0) -> Iterator[None]:
        """Time a block, which reads `nbytes`."""
        begin = time.perf_counter()
        yield
        self._rows.append((name, time.perf_counter() - begin, nbytes))

    def print(self) -> None:
        """A row a stage, and their sum."""
        print("| stage | s | GB/s |")
        print("| --- | ---: | ---: |")
        for name, seconds, nbytes in self._rows:
            rate = f"{nbytes / seconds / 1e9:.2f}" if nbytes else ""
            print(f"| {name} | {seconds:.2f} | {rate} |")
        print(
            f"| start to first token | {sum(seconds for _, seconds, _ in self._rows):.2f} | |",
            flush=True,
        )


def start(folder: Path, device: str, quantization: str) -> None:
    """Start an engine on a checkpoint until it has written a token; print what each stage took."""
    stages = Stages()
    with stages.stage("imports"):
        import torch

        from rose.engine.engine import Engine
        from rose.engine.local_executor import LocalExecutor
        from rose.engine.start import resolve_cache
        from rose.options import EngineOptions
    with stages.stage("options, device"):
        options = EngineOptions(model=str(folder), device=device, quantization=quantization)
        config = options.resolve()
        torch.zeros(1, device=config.device)
    with stages.stage("weights", checkpoint_bytes(folder)):
        executor = LocalExecutor(config)
        if config.device == "cuda":
            torch.cuda.synchronize()
    with stages.stage("largest step"):
        cache, max_model_len = resolve_cache(config, executor)
    with stages.stage("KV cache, graphs"):
        executor.allocate(cache, max_model_len)
        engine = Engine(config, executor, cache, max_model_len)
    with stages.stage("first token"):
        write_token(engine, "first")
    stages.print()
    begin = time.perf_counter()
    write_token(engine, "second")
    print(f"first token of another request: {time.perf_counter() - begin:.3f} s")
    engine.shutdown()


def write_token(engine: "Engine", name: str) -> None:
    """Run one request for one token."""
    from rose.protocol import Request, SamplingParams

    params = SamplingParams(max_tokens=1, temperature=0)
    engine.add_request(Request(request_id=name, prompt_token_ids=PROMPT, sampling=params))
    while engine.has_work():
        engine.step()


def read_alone(folder: Path, device: str) -> None:
    """Read and copy a checkpoint as a load does, and place nothing."""
    import torch

    from rose.options import EngineOptions

    config = EngineOptions(model=str(folder), device=device).resolve()
    torch.zeros(1, device=config.device)
    begin, nbytes = time.perf_counter(), stream_to_nowhere(config)
    if config.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(f"reading and copying alone: {seconds:.2f} s, {nbytes / seconds / 1e9:.2f} GB/s")


def stream_to_nowhere(config: "EngineConfig") -> int:
    """The number of bytes."""
    import torch

    from rose.core.mapping import ParallelMapping
    from rose.models.gpt_oss import GptOss
    from rose.models.layouts import WeightSource
    from rose.models.placement import placements
    from rose.models.streaming import Placement, Streaming, stream
    from rose.quant import quant_scheme

    device = torch.device(config.device)
    streaming = Streaming.for_device(device)
    source = WeightSource(config.path, config.model)
    shape_only = GptOss(
        config.model,
        scheme=quant_scheme(config.quantization),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=torch.device("meta"),
    )
    pieces = placements(shape_only, source, config.model, streaming.piece_bytes)
    reads = [Placement(piece.sources, lambda tensors: None) for piece in pieces]
    stream(reads, device, streaming, lambda piece, tensors: None)
    return source.nbytes


def checkpoint_bytes(folder: Path) -> int:
    """Bytes of all shards."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def main() -> None:
    """Parse the arguments, write a checkpoint if there is none, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="gpt-oss-20b", help="of a checkpoint to be written")
    parser.add_argument("--layers", type=int, help="of it; fewer than the model has")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quantization", default="auto")
    parser.add_argument("--alone", action="store_true", help="time reads without placement, too")
    args = parser.parse_args()
    if not (args.folder / "config.json").exists():
        layers = [] if args.layers is None else ["--layers", str(args.layers)]
        words = [str(WRITER), str(args.folder), "--shape", args.shape, *layers]
        subprocess.run([sys.executable, *words], check=True)
    start(args.folder, args.device, args.quantization)
    if args.alone:
        read_alone(args.folder, args.device)


if __name__ == "__main__":
    main()
