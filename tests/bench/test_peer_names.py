"""Whether the stand-ins still speak of the packages; runs where those are installed."""

import inspect
from importlib.util import find_spec

import pytest

from tests.bench import peer_stand_ins


def names(callable_):
    return set(inspect.signature(callable_).parameters)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed")
def test_names_of_vllm():
    import vllm
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.llm_engine import LLMEngine

    assert names(vllm.EngineArgs) >= peer_stand_ins.VLLM_ENGINE_ARGS
    assert names(vllm.SamplingParams) >= peer_stand_ins.VLLM_SAMPLING
    assert names(peer_stand_ins.VllmLLM) <= names(vllm.LLM)
    for name in ("add_request", "abort_request", "step", "has_unfinished_requests"):
        ours = getattr(peer_stand_ins.VllmEngine, name)
        assert names(ours) <= names(getattr(LLMEngine, name))
    assert RequestOutputKind.DELTA


@pytest.mark.skipif(find_spec("sglang") is None, reason="sglang is not installed")
def test_names_of_sglang():
    import sglang
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs

    assert names(ServerArgs) >= peer_stand_ins.SGLANG_SERVER_ARGS
    assert names(SamplingParams) >= peer_stand_ins.SGLANG_SAMPLING
    assert names(peer_stand_ins.SglangEngine.generate) <= names(sglang.Engine.generate)
    assert sglang.Engine.shutdown
    assert sglang.Engine.get_server_info
