"""The programs of scripts/ as modules, so that a test can call their functions."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> ModuleType:
    """`name` is the path below scripts/ without the suffix: check, bench/run."""
    path = ROOT / "scripts" / f"{name}.py"
    module_name = f"scripts_{name.replace('/', '_')}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module
