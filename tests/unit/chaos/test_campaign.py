"""Many runs: what is still to come after an interruption, and the table."""

from pathlib import Path

from tidelog.chaos.campaign import Result, append, read, table, to_come

A, B = "row-01-kill-leader", "row-02-kill-follower"


def result(
    name: str, exit_code: int = 0, gap_s: float | None = 1.0, overhead_s: float = 5.0, on: str = "local"
) -> Result:
    return Result(name, int(name[4:6]), on, 7, exit_code, gap_s, overhead_s, "", f"data/chaos/{name}-1", 0)


def test_rounds_take_turns_and_go_on_where_they_stood() -> None:
    assert to_come([A, B], 2, "local", []) == [A, B, A, B]
    assert to_come([A, B], 2, "local", [result(A)]) == [B, A, B]
    assert to_come([A, B], 2, "local", [result(A), result(B), result(A)]) == [B]
    assert to_come([A, B], 1, "local", [result(A), result(A), result(B)]) == []


def test_runs_elsewhere_do_not_count() -> None:
    assert to_come([A], 1, "local", [result(A, on="compose")]) == [A]
    assert table([A], "local", [result(A, on="compose")]) == []


def test_a_run_that_was_not_sound_is_a_run_too() -> None:
    assert to_come([A], 1, "local", [result(A, exit_code=1)]) == []


def test_the_table_has_median_and_worst_gap() -> None:
    done = [result(A, gap_s=1.0), result(A, gap_s=7.25, overhead_s=9.0), result(A, 1, 2.0), result(B, 3, None, 1.0)]
    assert table([B, A], "local", done) == [
        ("2", B, "1", "0", "-", "-", "1.0 s"),
        ("1", A, "3", "2", "2.00 s", "7.25 s", "5.0 s"),
    ]


def test_results_survive_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "below" / "results.jsonl"
    assert read(path) == []
    append(path, result(A))
    with path.open("a") as file:
        file.write('{"name": "row-0')
    append(path, result(B))
    assert read(path) == [result(A), result(B)]
