"""What the engine itself costs: microseconds of Python a step, on an executor that does nothing.

    python bench/engine_step.py [--steps N]

Decode: every sequence yields one token a step, and its outputs are built and returned.
`schedule` and `update` are timed apart as well as in `Engine.step`, which also submits.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rose.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from rose.core.scheduler import Scheduler
from rose.core.sequence import make_sequences
from rose.core.step import ModelRunnerOutput, SchedulerOutput
from rose.engine.engine import Engine
from rose.protocol import Request, SamplingParams

LENGTH = 1 << 14
PROMPT = 64
BLOCK = 16


class _Handle:
    """A result that is always there."""

    def __init__(self, output: ModelRunnerOutput) -> None:
        self.output = output

    def result(self) -> ModelRunnerOutput:
        """Return it."""
        return self.output


class TrivialExecutor:
    """Answers each step with the same token."""

    def kv_bytes(self) -> int:
        """No memory is needed."""
        return 0

    def block_bytes(self, block_size: int) -> Sequence[int]:
        """Blocks are but numbers here."""
        return (0, 0)

    def allocate(self, cache: CacheConfig, max_model_len: int) -> None:
        """Nothing to allocate."""

    def submit(self, step: SchedulerOutput) -> _Handle:
        """Answer at once."""
        return _Handle(_answer(step))

    def shutdown(self) -> None:
        """Nothing to free."""


def _answer(step: SchedulerOutput) -> ModelRunnerOutput:
    return ModelRunnerOutput(step.step_id, [[7] for row in step.sequences if row.samples])


def _model() -> ModelConfig:
    config: dict[str, object] = {
        "architectures": ["GptOssForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "head_dim": 64,
        "vocab_size": 201088,
        "sliding_window": 128,
        "max_position_embeddings": LENGTH,
        "eos_token_id": [200002, 199999, 200012],
    }
    return ModelConfig.from_dicts(config, {}, source="bench")


def _limits(count: int) -> tuple[SchedulerConfig, CacheConfig]:
    scheduler = SchedulerConfig(max_num_seqs=count, max_batched_tokens=max(2048, count))
    blocks = count * (LENGTH // BLOCK) + 1024
    return scheduler, CacheConfig(block_size=BLOCK, num_blocks=(blocks, blocks), window=128)


def _request(index: int, prompt: int = PROMPT) -> Request:
    return Request(
        request_id=f"request-{index}",
        prompt_token_ids=[index + 1] * prompt,
        sampling=SamplingParams(temperature=0),
    )


def _time_us(run: Callable[[], object], steps: int) -> tuple[float, float]:
    """Mean and 99th percentile of one call, in microseconds.

    The mean, since the median would hide the steps in which many sequences need a block.
    """
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - begin) / 1000)
    times.sort()
    return statistics.fmean(times), times[int(0.99 * (len(times) - 1))]


def _engine(count: int) -> Engine:
    scheduler, cache = _limits(count)
    config = EngineConfig(
        model=_model(), path=Path("bench"), served_name="bench", scheduler=scheduler
    )
    return Engine(config, TrivialExecutor(), cache, LENGTH)


def bench_engine(count: int, steps: int) -> tuple[float, float]:
    """`Engine.step` in steady decode."""
    engine = _engine(count)
    for index in range(count):
        engine.add_request(_request(index))
    for _ in range(20 + count * PROMPT // 1024):
        engine.step()
    assert len(engine.step()) == count, "not every sequence decodes yet"
    return _time_us(engine.step, steps)


def bench_parts(count: int, steps: int) -> tuple[float, float]:
    """Means of `schedule` and of `update` in steady decode, one step ahead."""
    scheduler = Scheduler(*_limits(count))
    for index in range(count):
        request = _request(index)
        scheduler.add(
            make_sequences(request, first_id=index, seed=0, eos_token_ids=(1,), longest=LENGTH)
        )
    schedule_us, update_us, due = [], [], None
    warm_up = 20 + count * PROMPT // 1024
    for number in range(warm_up + steps):
        begin = time.perf_counter_ns()
        step = scheduler.schedule()
        middle = time.perf_counter_ns()
        if due is not None:
            answer = _answer(due)
            before = time.perf_counter_ns()
            scheduler.update(due, answer)
            after = time.perf_counter_ns()
            if number >= warm_up:
                schedule_us.append((middle - begin) / 1000)
                update_us.append((after - before) / 1000)
        due = step
    return statistics.fmean(schedule_us), statistics.fmean(update_us)


def bench_prefill(prompt: int, steps: int) -> tuple[float, float]:
    """A request of `prompt` tokens, from arrival to its first token: admission and hashing."""
    engine = _engine(8)
    numbers = iter(range(steps))

    def one() -> None:
        request = _request(next(numbers), prompt)
        engine.add_request(request)
        while not engine.step():
            pass
        engine.abort(request.request_id)

    return _time_us(one, steps)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps timed a row")
    steps = parser.parse_args().steps
    print(f"Python {platform.python_version()}, {platform.machine()}, {_processor()}; us a step")
    print("| sequences decoding | Engine.step | p99 | schedule | update |")
    print("|---:|---:|---:|---:|---:|")
    for count in (1, 32, 256):
        mean, tail = bench_engine(count, steps)
        schedule, update = bench_parts(count, steps)
        print(f"| {count} | {mean:.0f} | {tail:.0f} | {schedule:.0f} | {update:.0f} |")
    print()
    print("| prompt tokens | add to first token, all steps | p99 |")
    print("|---:|---:|---:|")
    for prompt in (128, 2048, 8192):
        mean, tail = bench_prefill(prompt, max(20, steps // 10))
        print(f"| {prompt} | {mean:.0f} | {tail:.0f} |")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"


if __name__ == "__main__":
    main()
