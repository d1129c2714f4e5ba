"""The core runs without torch and numpy."""

import subprocess
import sys

MODULES = (
    "block_manager",
    "block_pool",
    "mapping",
    "scheduler",
    "sequence",
    "step",
    "waiting_queue",
)


def test_core_loads_neither_torch_nor_numpy():
    imports = "; ".join(f"import rose.core.{name}" for name in MODULES)
    script = f"{imports}; import sys; print(sorted({{'torch', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_every_core_module_is_covered():
    import pkgutil

    import rose.core

    assert {m.name for m in pkgutil.iter_modules(rose.core.__path__)} == set(MODULES)
