"""Products overlap with what prepares their operands, as far as this is safe.

Where ptxas cannot prove that registers are safe, it waits for each wgmma before the next. It says
so, but nobody sees it, and the kernel stays right and takes about twice as long. Where Triton lets
a product of registers run on into the loop's next round, ptxas writes to them too early.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import triton

from rose.kernels.cuda import nvrtc
from tests.kernels.cuda.sources import NVCC, SOURCES
from tests.kernels.fused.uninterpreted import ROOT, run_python
from tools.sm90 import cuobjdump
from tools.wgmma_hazards import check

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x\w+")

COMPILE = """
import sys
from pathlib import Path
from tools.compile_kernels import compile_ops
launches = compile_ops(["experts", "attention"])
unique = {each.cubin: each for each in launches if each.wgmma}.values()
for number, each in enumerate(unique):
    file = Path(sys.argv[1]) / f"{each.kernel}-{number}"
    file.with_suffix(".ptx").write_text(each.ptx)
    file.with_suffix(".cubin").write_bytes(each.cubin)
"""

REGISTERS = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 left, .param .u64 right, .param .u64 out, .param .u32 steps)
{
    .reg .pred more;
    .reg .b32 l<4>, n;
    .reg .f32 s<4>;
    .reg .b64 from, to, desc;
    ld.param.u64 from, [left];
    ld.param.u64 desc, [right];
    ld.param.u64 to, [out];
    ld.param.u32 n, [steps];
    mov.f32 s0, 0f00000000;
    mov.f32 s1, 0f00000000;
    mov.f32 s2, 0f00000000;
    mov.f32 s3, 0f00000000;
STEP:
    .pragma "nounroll";
    ld.global.v4.b32 {l0, l1, l2, l3}, [from];
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
        {s0, s1, s2, s3}, {l0, l1, l2, l3}, desc, 1, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned PENDING;
    add.u64 from, from, 16;
    sub.u32 n, n, 1;
    setp.ne.u32 more, n, 0;
    @more bra STEP;
    wgmma.wait_group.sync.aligned 0;
    st.global.v4.f32 [to], {s0, s1, s2, s3};
    ret;
}
"""
"""Adds up products of registers that each round loads anew."""

PRODUCT = "HGMMA.64x16x16.F32.BF16 R24, R32, gdesc[UR4], R24, gsb0"  # sums R24 to R31
UNCOMMITTED = PRODUCT.removesuffix(", gsb0")
OF_MEMORY = "HGMMA.64x16x16.F32.BF16 R32, gdesc[UR8], RZ, !UPT, gsb0"
DONE = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
LAST_RUNS = "WARPGROUP.DEPBAR.LE gsb0, 0x1"
LAST_TWO_RUN = "WARPGROUP.DEPBAR.LE gsb0, 0x2"
TWO_BUFFERS = ["MOV R32, R8", PRODUCT, LAST_RUNS, "MOV R40, R8", PRODUCT.replace("R32", "R40")]

SAFE = {
    "another register": [PRODUCT, "MOV R36, R32", DONE],
    "after the wait": [PRODUCT, DONE, "MOV R32, R24"],
    "sums of both": [PRODUCT, PRODUCT, DONE],
    "of the group before": [PRODUCT, PRODUCT.replace("R32", "R40"), LAST_RUNS, "LDS.128 R32, [R2]"],
    "two buffers": [*TWO_BUFFERS, LAST_RUNS, "@P0 BRA 0x0", DONE],
    "a path without products": ["@P0 BRA 0x30", PRODUCT, DONE, "MOV R24, R32"],
    "after the end": [PRODUCT, "EXIT", "MOV R24, R32"],
    "a store's address": [PRODUCT, "STS.128 [R32], R8"],
}
WRONG = {
    "writes the left operand": [PRODUCT, "LDG.E.128 R32, desc[UR4][R2.64]"],
    "writes after a predicate": [PRODUCT, "SHFL.BFLY PT, R34, R8, 0x1, 0x1f"],
    "writes sums": [PRODUCT, "CS2R R30, SRZ"],
    "reads sums": [PRODUCT, "STS.128 [R2], R28"],
    "reads sums in part": [PRODUCT, "FADD R8, R8, -R25.reuse"],
    "sums over a left operand": [PRODUCT, OF_MEMORY],
    "a left operand of sums": [OF_MEMORY, PRODUCT],
    "no group to wait for": [UNCOMMITTED, DONE, "MOV R32, R8"],
    "the last group runs": [PRODUCT, LAST_RUNS, "MOV R32, R8"],
    "the wait is on one path": [PRODUCT, "@P0 BRA 0x30", DONE, "MOV R32, R8"],
    "the wait is under a predicate": [PRODUCT, f"@!P0 {DONE}", "MOV R32, R8"],
    "in the next round": ["MOV R33, R8", PRODUCT, "@P0 BRA 0x0", DONE],
    "two buffers, two groups": [*TWO_BUFFERS, LAST_TWO_RUN, "@P0 BRA 0x0", DONE],
    "in a call": [PRODUCT, "CALL.REL.NOINC 0x40", DONE, "EXIT", "MOV R32, R8", "RET.REL.NODEC R2"],
    "after a call": [PRODUCT, "CALL.REL.NOINC 0x40", "MOV R32, R8", "EXIT", "RET.REL.NODEC R2"],
}


def listing(lines):
    code = "".join(
        f"        /*{16 * number:04x}*/      {line} ;    /* 0x0 */\n"
        for number, line in enumerate([*lines, "EXIT"])
    )
    return f"\t\tFunction : example\n{code}"


def hazards(text):
    return [hazard for kernel in check(text) for hazard in kernel.hazards]


def in_threads(function, files):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, files))


def assemble(ptx, cubin=os.devnull):
    command = [PTXAS, "-arch=sm_90a", "-o", cubin, ptx]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every kernel with wgmma of the experts and of attention, as .ptx and .cubin."""
    folder = tmp_path_factory.mktemp("kernels")
    run_python("-c", COMPILE, str(folder))
    return folder


@pytest.fixture(scope="module")
def listings(folder):
    """The same, disassembled, by name."""
    files = sorted(folder.glob("*.cubin"))
    texts = in_threads(lambda file: cuobjdump(file.read_bytes(), "--dump-sass"), files)
    return {file.stem: text for file, text in zip(files, texts, strict=True)}


def test_no_product_is_serialised(folder):
    files = [file for file in folder.glob("*.ptx") if file.stat().st_size]  # CUDA C++ has none
    assert files
    for said in in_threads(assemble, files):
        assert "serialized" not in said, said


def test_no_register_is_touched_before_its_product_is_done(listings):
    from_registers = set()
    for name, text in listings.items():
        for kernel in check(text):
            assert kernel.products, name
            assert not kernel.hazards, name
            if kernel.from_registers:
                from_registers.add(kernel.kernel)
    assert {"_experts_mxfp4_kernel", "_attention_chunk_kernel"} <= from_registers


def test_without_its_waits_no_kernel_passes(listings):
    for name, text in listings.items():
        changed = WAIT.sub("NOP", text)
        assert changed != text
        assert hazards(changed), name


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda file: file.name)
def test_cuda_sources(source, compiler, tmp_path):
    if compiler == "nvrtc":
        if not nvrtc.available():
            pytest.skip("needs cuda-bindings with NVRTC, as torch's CUDA 13 builds have")
        code = nvrtc.cubin(source, {})
    else:
        if shutil.which("nvcc") is None:
            pytest.skip("needs nvcc on the path")
        file = tmp_path / "out.cubin"
        subprocess.run([*NVCC, "-o", file, source], check=True)
        code = file.read_bytes()
    text = cuobjdump(code, "--dump-sass")
    for kernel in check(text):
        assert not kernel.hazards, kernel.kernel
    assert hazards(WAIT.sub("NOP", text)) or "GMMA" not in text


@pytest.mark.parametrize("pending", [0, 1])
def test_what_ptxas_does_not_see(pending, tmp_path):
    source, out = tmp_path / "sum.ptx", tmp_path / "sum.cubin"
    source.write_text(REGISTERS.replace("PENDING", str(pending)))
    assert not assemble(source, out)
    command = [sys.executable, "-m", "tools.wgmma_hazards", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    _, kernel, *found = done.stdout.splitlines()
    assert kernel == f"{out}: sum 1 1 {len(found)}"
    assert done.returncode == bool(found) == (pending > 0), done.stderr
    assert all(re.search(r": writes R\d+, left operand in flight$", line) for line in found)


@pytest.mark.parametrize("case", SAFE)
def test_safe(case):
    assert not hazards(listing(SAFE[case]))


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case):
    assert len(hazards(listing(WRONG[case]))) == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([PRODUCT, "BRX R4 -0x10"], r"cannot follow the jump `BRX R4 -0x10` at 0x10"),
        ([PRODUCT, "BRA 0x800"], r"after `BRA 0x800` no code at 0x800"),
        ([PRODUCT.replace("R32", "R33")], r"does not know registers as in `HGMMA.*R33"),
        (["EXIT", PRODUCT], r"no path through example gets to all of its products"),
    ],
)
def test_what_it_cannot_read_is_an_error(lines, message):
    with pytest.raises(ValueError, match=message):
        check(listing(lines))
