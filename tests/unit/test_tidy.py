"""The rest of scripts/check.py: sizes, calls with one home, coroutines of tests, leftovers."""

from pathlib import Path

import pytest

from helpers.scripts import load_script

check = load_script("check")


def problems_of(tmp_path: Path, path: str, text: str) -> list[str]:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    return [str(problem) for problem in check.check_tree(tmp_path)]


@pytest.mark.parametrize(
    ("path", "line", "complaint"),
    [
        ("broker/app.py", "time.monotonic()", "use the Clock port"),
        ("broker/app.py", "await asyncio.sleep(1)", "use the Clock port"),
        ("broker/app.py", "random.choice([1])", "use the Rand port"),
        ("broker/app.py", "open('x')", "use the Disk port"),
        ("broker/app.py", "print('x')", "use the log"),
        ("broker/__main__.py", "print('x')", "use the log"),
        ("broker/app.py", "asyncio.create_task(f())", "has no owner"),
        ("broker/app.py", "loop.create_task(f())", "has no owner"),
        ("runtime/loop.py", "asyncio.ensure_future(f())", "has no owner"),
    ],
)
def test_a_call_outside_its_home_is_found(tmp_path: Path, path: str, line: str, complaint: str) -> None:
    (problem,) = problems_of(tmp_path, f"services/tidelog/{path}", f"async def f():\n    {line}\n")
    assert complaint in problem and f"{path}:2:" in problem


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("runtime/clock.py", "time.monotonic()"),
        ("broker/__main__.py", "random.Random()"),
        ("cli/main.py", "print('x')"),
        ("runtime/tasks.py", "asyncio.create_task(f())"),
        ("broker/app.py", "async with asyncio.TaskGroup() as group: group.create_task(f())"),
        ("broker/app.py", "self.clock.time.monotonic()"),
    ],
)
def test_a_call_in_its_home_is_fine(tmp_path: Path, path: str, line: str) -> None:
    assert problems_of(tmp_path, f"services/tidelog/{path}", f"async def f():\n    {line}\n") == []


@pytest.mark.parametrize("clause", ["except:", "except Exception:", "except (OSError, BaseException):"])
def test_catching_everything_is_for_the_supervisor_alone(tmp_path: Path, clause: str) -> None:
    text = f"try:\n    f()\n{clause}\n    pass\n"
    assert "catches everything" in problems_of(tmp_path, "services/tidelog/broker/app.py", text)[0]
    (tmp_path / "services/tidelog/broker/app.py").unlink()
    assert problems_of(tmp_path, "services/tidelog/runtime/tasks.py", text) == []


STORY = "def test_it():\n    async def story(): ...\n    async def other(): ...\n\n"


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.run(story())",
        "run(story(), timeout_s=1)",
        "aio.run(timeout_s=1, story=story())",
        "sim.run(story, 1)",
        "assert sim.run(with_candidates(1, story)) == 1",
        "for seed in range(3): sim.run(story(), seed)",
        "loop.run_until_complete(story())",
        "with pytest.raises(OSError): run(run(other()))",
        "cluster.on_step(lambda: run(story()))",
    ],
)
def test_a_sync_test_with_a_coroutine_of_its_own_is_found(tmp_path: Path, line: str) -> None:
    problem, *_ = problems_of(tmp_path, "tests/unit/test_x.py", f"{STORY}    {line}\n")
    assert problem.startswith("tests/unit/test_x.py:5: a coroutine of its own; make the test async def")
    assert problem.endswith(line)


@pytest.mark.parametrize(
    "text",
    [
        f"async {STORY}    await story()\n",
        f"async {STORY}    await asyncio.to_thread(run, story())\n",
        f"{STORY}    cluster.once('Produce', story)\n    run(cluster.serve())\n",
        f"{STORY}    subprocess.run(['story'])\n",
        f"{STORY}    story.run()\n",
        STORY.replace("test_it", "ask") + "    return run(story())\n",
        "async def story(): ...\n\ndef test_it():\n    run(story())\n",
    ],
)
def test_a_coroutine_that_is_a_callback_is_fine(tmp_path: Path, text: str) -> None:
    assert problems_of(tmp_path, "tests/unit/test_x.py", text) == []


def test_tests_of_the_loop_may_run_their_coroutines(tmp_path: Path) -> None:
    text = f"{STORY}    run(story())\n"
    for path in (*check.LOOP_TESTS, "scripts/test_x.py"):
        assert problems_of(tmp_path, path, text) == []


def test_the_length_of_functions_is_bounded(tmp_path: Path) -> None:
    body = "    x = 1\n" * 69
    assert problems_of(tmp_path, "tests/unit/test_x.py", f"def f():\n{body}") == []
    assert "f has 71 lines" in problems_of(tmp_path, "tests/unit/test_x.py", f"def f():\n{body}    x = 1\n")[0]


def test_leftovers_are_found_in_code_scripts_and_protos(tmp_path: Path) -> None:
    marker = "TO" + "DO"
    for path, text in (
        ("scripts/x.py", f"# {marker}: later\n"),
        ("scripts/x.sh", f"# {marker}\n"),
        ("proto/a.proto", f"// {marker}\n"),
    ):
        assert f"leftover marker {marker}" in problems_of(tmp_path, path, text)[-1]


def test_generated_code_is_left_alone(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "services/tidelog/wire/pb/common_pb2.py", "x = 1\n" * 700) == []
