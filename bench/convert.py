"""What `rose convert` costs: MXFP4 to FP8, on a random checkpoint with gpt-oss' own matrix sizes.

    python bench/convert.py [--experts N] [--threads N ...] [--folder DIR]

First whole conversions, then their stages, one at a time on one thread. "a CPU second" counts
processor time: on a machine that others use too, that is the number to compare.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rose.config import ModelConfig
from rose.convert import convert_checkpoint
from rose.convert.fp8 import Fp8Conversion
from rose.convert.matrices import Mxfp4Matrix, compare_with_source
from rose.convert.shards import Shard, ShardWriter
from rose.models.checkpoint import read_header, read_rows
from rose.models.layouts import ExpertProjection, WeightSource, expert_projections

TOOL = Path(__file__).resolve().parents[1] / "tools" / "make_tiny_checkpoint.py"
SIZE = 2880
VALUES_120B = 36 * 128 * 3 * SIZE**2


def make_source(folder: Path, experts: int) -> Path:
    """One layer of gpt-oss with few experts."""
    sizes = {"layers": 1, "hidden": SIZE, "intermediate": SIZE, "experts": experts, "vocab": 272}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    tool = [sys.executable, str(TOOL), str(folder), *words]
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)
    return folder


def bench_whole(source: Path, target: Path, threads: int) -> None:
    """Print a row for a whole conversion."""
    torch.set_num_threads(threads)
    wall, cpu = time.perf_counter(), time.process_time()
    report = convert_checkpoint(source, target, format="fp8")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    minutes = VALUES_120B / report.values * wall / 60
    print(
        f"| {threads} | {report.values / wall / 1e6:.0f} | {report.values / cpu / 1e6:.0f} | "
        f"{report.nbytes / wall / 1e9:.2f} | {minutes:.0f} | {report.changed} |"
    )


class Stages:
    """The parts of a conversion of the experts, timed one after the other on one thread."""

    def __init__(self, source: Path) -> None:
        torch.set_num_threads(1)
        self.config = ModelConfig.load(source)
        self.source = WeightSource(source, self.config)
        self.projections = expert_projections(self.config, 0)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.nbytes: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def _stage(self, name: str, nbytes: int) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begin
        self.nbytes[name] += nbytes

    def run(self, folder: Path) -> None:
        """Convert, write, read back and compare."""
        folder.mkdir()
        units = Fp8Conversion(self.source, self.config, lambda nbytes: None).units()
        names = {projection.name for projection in self.projections}
        tensors = tuple(tensor for unit in units for tensor in unit if unit[0].name in names)
        shard = Shard("model.safetensors", tensors)
        with ShardWriter(folder, shard) as writer:
            for projection in self.projections:
                for expert in range(self.config.num_experts):
                    self._write(writer, projection, expert)
            with self._stage("fsync, leave the page cache", shard.nbytes):
                writer.flush()
            for projection in self.projections:
                for expert in range(self.config.num_experts):
                    self._verify(writer.path, projection, expert)

    def _read(self, projection: ExpertProjection, expert: int) -> list[Mxfp4Matrix]:
        parts = projection.parts
        with self._stage("read MXFP4, twice", parts * SIZE * SIZE * 17 // 32):
            blocks = self.source.read(f"{projection.name}_blocks", expert, expert + 1)[0]
            scales = self.source.read(f"{projection.name}_scales", expert, expert + 1)[0]
        return [Mxfp4Matrix(blocks[part::parts], scales[part::parts]) for part in range(parts)]

    def _write(self, writer: ShardWriter, projection: ExpertProjection, expert: int) -> None:
        matrices, nbytes = self._read(projection, expert), projection.parts * SIZE * SIZE
        with self._stage("convert", nbytes):
            values = torch.empty(len(matrices), SIZE, SIZE, dtype=torch.float8_e4m3fn)
            pairs = [matrix.to_fp8(out) for matrix, out in zip(matrices, values, strict=True)]
        with self._stage("write FP8", nbytes):
            writer.write(projection.name, expert, values)
            scales = torch.stack([scales for scales, _ in pairs])
            writer.write(f"{projection.name}_scale_inv", expert, scales)

    def _verify(self, path: Path, projection: ExpertProjection, expert: int) -> None:
        matrices, nbytes = self._read(projection, expert), projection.parts * SIZE * SIZE
        with self._stage("read FP8 back", nbytes):
            stored = read_header(path)
            values = read_rows(stored[projection.name], expert, expert + 1)[0]
            scales = read_rows(stored[f"{projection.name}_scale_inv"], expert, expert + 1)[0]
        with self._stage("decode both, compare", nbytes):
            for part, matrix in enumerate(matrices):
                compare_with_source(projection.name, matrix, values[part], scales[part])

    def print_table(self) -> None:
        """Print a row a stage."""
        total = sum(self.seconds.values())
        values = self.nbytes["convert"]
        print(f"\n| stage, one thread | ns a value | GB/s | share of {total:.2f} s |")
        print("|---|---:|---:|---:|")
        for name, seconds in self.seconds.items():
            speed = self.nbytes[name] / seconds / 1e9
            share = f"{seconds / total:.0%}"
            print(f"| {name} | {seconds / values * 1e9:.2f} | {speed:.2f} | {share} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, default=6, help="13 MB of MXFP4 each")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, torch.get_num_threads()])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        source = make_source(folder / "source", args.experts)
        convert_checkpoint(source, folder / "warm-up", format="fp8")
        print(
            f"torch {torch.__version__}, Python {platform.python_version()}, {args.experts} experts"
        )
        print(
            "| threads | M values/s | M values a CPU second | GB/s written | 120B, min | changed |"
        )
        print("|---:|---:|---:|---:|---:|---:|")
        for number, threads in enumerate(args.threads):
            bench_whole(source, folder / f"out{number}", threads)
        stages = Stages(source)
        stages.run(folder / "stages")
        stages.print_table()


if __name__ == "__main__":
    main()
