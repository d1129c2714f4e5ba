"""Made-up result files of a realistic shape. Nothing in them was measured by anyone.

`python -m tests.bench.synthetic FOLDER` writes them, to look at a report.
"""

import random
import sys
from pathlib import Path

from rose.bench import published
from rose.bench.results import (
    VERSION,
    EngineCell,
    Machine,
    RequestSample,
    Result,
    RooflineCell,
    ServeCell,
    Sharding,
    Software,
    save,
)

NOTE = "SYNTHETIC: made up for tests, nothing was measured"
H200 = Machine(
    cpu="Synthetic CPU",
    cores=16,
    memory_bytes=128 << 30,
    gpu="Synthetic H200",
    gpus=8,
    gpu_memory_bytes=139 << 30,
    driver="580.0",
)
H100 = Machine(cpu="Another CPU", cores=8, memory_bytes=64 << 30, gpu="Synthetic H100", gpus=8)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def result(cells, *, engine="rose 0.1.0", machine=H200, command="rose bench ...", **fields):
    software = Software(
        engine=engine,
        rose="0.1.0",
        commit=fields.pop("commit", "0123456789abcdef"),
        python="3.12.3",
        packages={"torch": "2.11.0+cu130", "triton": "3.6.0"},
    )
    return Result(
        version=VERSION,
        created=fields.pop("created", "2026-01-02T03:04:05Z"),
        command=command,
        machine=machine,
        software=software,
        flags={"runs": "5"},
        cells=cells,
        notes=fields.pop("notes", [NOTE]),
        **fields,
    )


def cell(phase, seconds, *, tokens, batch=1, sharding=None, model="gpt-oss-120b", spread=0.0):
    """A cell whose median is `seconds`."""
    samples = [seconds * (1 + spread * k) for k in (-1, -0.5, 0, 0.5, 1)]
    return EngineCell(
        phase=phase,
        model=model,
        quantization="mxfp4",
        sharding=sharding or Sharding(),
        batch=batch,
        tokens=tokens,
        samples=samples,
    )


def prefill():
    """Every published cell, two to three times as fast."""
    chance = random.Random(1)
    return result(
        [
            cell(
                "prefill",
                row.seconds / (2 + chance.random()),
                tokens=row.tokens,
                sharding=row.sharding,
                model=row.model,
                spread=0.02,
            )
            for row in published.prefill_rows()
        ],
        command="rose bench prefill gpt-oss-120b --input 8192,32768,65536,128000",
    )


def step_seconds(model, gpus, batch, tokens):
    """A step's bytes over a bandwidth, and what does not shrink with GPUs."""
    dense, expert, experts = (1.6e9, 1.6e9, 128) if "120b" in model else (1.2e9, 1.1e9, 32)
    touched = experts * (1 - (1 - 4 / experts) ** batch)
    cache = batch * tokens * 18 * 2 * 1024
    return 8e-4 + 3e-4 * (gpus > 1) + (dense + expert * touched / 4 + cache) / gpus / 3.3e12


def decode():
    shardings = [Sharding(), Sharding(tp=2, ep=2), Sharding(tp=4, ep=4), Sharding(tp=8, ep=8)]
    cells = [
        cell(
            "decode",
            step_seconds(model, sharding.gpus, batch, tokens),
            tokens=tokens,
            batch=batch,
            sharding=sharding,
            model=model,
            spread=0.03,
        )
        for model in ("gpt-oss-20b", "gpt-oss-120b")
        for sharding in shardings
        for tokens in (8192, 32768)
        for batch in BATCHES
        if batch * tokens <= 2**21 * sharding.gpus
    ]
    command = "rose bench decode gpt-oss-120b --context 8192,32768 --batch 1,2,4,8,16,32,64,128"
    return result(cells, command=command)


def peer():
    """vLLM through `rose bench decode --engine vllm`."""
    cells = [
        cell("decode", 1.4 * step_seconds("gpt-oss-120b", 1, b, 8192), tokens=8192, batch=b)
        for b in BATCHES
    ]
    return result(cells, engine="vllm 0.0.synthetic", command="rose bench decode --engine vllm")


def roofline():
    rates = [
        ("copy", "B", 8.6e9, 8.6e9 / 4.27e12),
        ("read", "B", 4.3e9, 4.3e9 / 4.24e12),
        ("gemm bf16 8192x8192x8192", "FLOP", 1.1e12, 1.1e12 / 701e12),
        ("gemm fp8 8192x5120x2944", "FLOP", 2.5e11, 2.5e11 / 1.28e15),
        ("grouped gemm fp8 32x1024x5760x2880", "FLOP", 1.09e12, 1.09e12 / 1.1e15),
        ("launch in a graph", "call", 1000.0, 1.14e-3),
        ("all-reduce 128x2880 bf16 over 2", "call", 1.0, 17e-6),
    ]
    cells = [
        RooflineCell(name=name, unit=unit, amount=amount, samples=[s * 0.99, s, s * 1.02])
        for name, unit, amount, s in rates
    ]
    return result(cells, command="rose bench roofline")


def request(due, first, gap, count, chance):
    times, at = [], due + first
    for _ in range(count):
        times.append(at)
        at += gap * (0.8 + 0.4 * chance.random())
    return RequestSample(
        scheduled=due,
        sent=due + 2e-4,
        token_times=times,
        token_counts=[1] * count,
        finished=times[-1],
        prompt_tokens=1024,
        output_tokens=count,
    )


def serving():
    chance = random.Random(2)
    cells = []
    for rate in (1, 2, 4, 8):
        due, requests = 0.0, []
        for _ in range(40):
            due += chance.expovariate(rate)
            first = 0.08 * (1 + 0.15 * rate) * (1 + chance.expovariate(3))
            requests.append(request(due, first, 0.008 * (1 + rate / 10), 20, chance))
        cells.append(
            ServeCell(
                model="gpt-oss-120b",
                load=f"poisson {rate}/s",
                duration=requests[-1].finished,
                requests=requests,
                gpus=1,
                saturated="its event loop lagged 5.1 ms" if rate == 8 else None,
            )
        )
    return result(cells, command="rose bench serve http://127.0.0.1:8000 --rate 1,2,4,8")


def write_all(folder):
    """Write one file of each kind, and return their paths."""
    made = {
        "prefill": prefill(),
        "decode": decode(),
        "peer": peer(),
        "roofline": roofline(),
        "serving": serving(),
    }
    paths = []
    for name, content in made.items():
        paths.append(folder / f"synthetic-{name}.json")
        save(content, paths[-1])
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_all(target)
