"""Many runs: what is still to come after an interruption, and the table."""

from pathlib import Path

from tidelog.chaos.campaign import Result, append, of, read, table, to_come

A, B = "row-01-kill-leader", "row-02-kill-follower"


def result(
    name: str,
    exit_code: int = 0,
    gap_s: float | None = 1.0,
    overhead_s: float = 5.0,
    on: str = "local",
    column: str = "all/2",
) -> Result:
    return Result(name, int(name[4:6]), on, 7, exit_code, gap_s, overhead_s, "", f"data/chaos/{name}-1", 0, column)


def test_rounds_take_turns_and_go_on_where_they_stood() -> None:
    assert to_come([A, B], 2, []) == [A, B, A, B]
    assert to_come([A, B], 2, [result(A)]) == [B, A, B]
    assert to_come([A, B], 2, [result(A), result(B), result(A)]) == [B]
    assert to_come([A, B], 1, [result(A), result(A), result(B)]) == []


def test_runs_elsewhere_and_of_another_column_or_scenario_do_not_count() -> None:
    mine = result(A)
    others = [result(A, on="compose"), result(A, column="all/1"), result(B)]
    assert of([*others, mine], [A], "local", "all/2") == [mine]
    assert of([*others, mine], [A], "local", "all/1") == [others[1]]
    assert to_come([A, B], 1, [mine]) == [B]


def test_a_run_that_was_not_sound_is_a_run_too() -> None:
    assert to_come([A], 1, [result(A, exit_code=1)]) == []


def test_the_table_has_median_and_worst_gap() -> None:
    done = [result(A, gap_s=1.0), result(A, gap_s=7.25, overhead_s=9.0), result(A, 1, 2.0), result(B, 3, None, 1.0)]
    assert table([B, A], done) == [
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
