"""The installed LMDeploy still has every hook that we patch; where one has moved, a sentence names it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

lmdeploy = pytest.importorskip("lmdeploy")

from engine.lmdeploy_patches import LMDeployChanged  # noqa: E402
from engine.lmdeploy_patches.hooks import find, function, with_constant, with_default  # noqa: E402

ROOT = Path(__file__).parents[3]


def in_a_fresh_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_all_hooks_are_where_they_were() -> None:
    program = (
        "from engine.lmdeploy_patches import install\n"
        "install('cpu'); install('cpu')\n"
        "from lmdeploy import PytorchEngineConfig\n"
        "from lmdeploy.pytorch.backends import get_backend\n"
        "print(PytorchEngineConfig(device_type='cpu').device_type, get_backend('cpu').get_name())"
    )
    assert in_a_fresh_process(program).splitlines()[-1] == "cpu cpu"


def test_torch_itself_is_left_alone() -> None:
    """Outside torch.cuda; and the compiler sees that as it was."""
    program = (
        "import torch, torch._dynamo\n"
        "before = {n: getattr(torch, n) for n in dir(torch)}; to = torch.Tensor.to; s = torch.cuda.Stream\n"
        "from engine.lmdeploy_patches import install\n"
        "install('cpu')\n"
        "from engine.lmdeploy_patches.torch_cuda import the_real_cuda\n"
        "changed = [n for n, v in before.items() if getattr(torch, n) is not v]\n"
        "assert torch.cuda.Stream is not s and not torch.cuda.is_available()\n"
        "with the_real_cuda(): assert torch.cuda.Stream is s\n"
        "print(changed, torch.Tensor.to is to)"
    )
    assert in_a_fresh_process(program).splitlines()[-1] == "[] True"


def test_no_device_literal_of_the_engines_path_is_missed() -> None:
    """Every 'cuda' that LMDeploy writes where our engine runs is one that is patched, or is known not to be reached."""
    from engine.lmdeploy_patches.cpu import DEVICE_LITERALS

    root = Path(lmdeploy.__file__).parent / "pytorch"
    files = {
        "lmdeploy.pytorch.engine.model_agent.agent": root / "engine/model_agent/agent.py",
        "lmdeploy.pytorch.engine.cache_engine.engine": root / "engine/cache_engine/engine.py",
        "lmdeploy.pytorch.engine.cache_engine.state": root / "engine/cache_engine/state.py",
    }
    replaced_or_unreached = {
        "lmdeploy.pytorch.engine.model_agent.agent:_try_to_cuda",  # replaced as a whole
        "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent.get_checkpoint_engine_status",  # weights from others
    }
    found = {f"{module}:{name}" for module, path in files.items() for name in functions_that_say_cuda(path)}
    assert found == set(DEVICE_LITERALS) | replaced_or_unreached


def functions_that_say_cuda(path: Path) -> set[str]:
    names = set()

    def visit(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child, f"{owner}.{child.name}".lstrip("."))
            elif isinstance(child, ast.Constant) and child.value == "cuda":
                names.add(owner)
            else:
                visit(child, owner)

    visit(ast.parse(path.read_text("utf-8")), "")
    return names


def test_a_hook_that_is_gone_is_named() -> None:
    with pytest.raises(LMDeployChanged, match=r"lmdeploy\.messages:PytorchEngineConfig\.gone is gone"):
        find("lmdeploy.messages:PytorchEngineConfig.gone")
    with pytest.raises(LMDeployChanged, match=r"no module lmdeploy\.nowhere"):
        find("lmdeploy.nowhere:anything")


def test_a_hook_that_takes_other_arguments_is_named() -> None:
    with pytest.raises(LMDeployChanged, match=r"get_max_batch_size takes \(device_type\), not \(device\)"):
        function("lmdeploy.utils:get_max_batch_size", ["device"])


def speaks() -> str:
    return "word"


def takes(parameter: str = "word") -> str:
    return parameter


def test_a_literal_that_is_gone_is_named() -> None:
    here = __name__
    with_constant(f"{here}:speaks", "word", "other")
    assert speaks() == "other"
    with pytest.raises(LMDeployChanged, match="does not contain the literal 'nothing'"):
        with_constant(f"{here}:speaks", "nothing", "x")
    with_default(f"{here}:takes", "parameter", "word", "other")
    assert takes() == "other"
    with pytest.raises(LMDeployChanged, match="has no parameter missing"):
        with_default(f"{here}:takes", "missing", "word", "other")
