"""The `tidelog` command as a process of its own."""

import subprocess
import sys


def tidelog(servers: str, *args: str, exit_code: int = 0) -> str:
    """What it prints, on standard error where it is to fail; never a trace."""
    found = subprocess.run(
        [sys.executable, "-m", "tidelog.cli.main", *args, "--bootstrap-server", servers],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == exit_code, found.stderr.decode()
    assert b"Traceback" not in found.stderr
    return (found.stdout if exit_code == 0 else found.stderr).decode()
