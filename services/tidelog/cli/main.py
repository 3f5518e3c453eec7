"""`tidelog`: one command for the whole cluster. An error is one line on the standard error and an exit code that is not 0.

Little is imported here, so that Ctrl-C in the first moments ends a command as it does later.
"""

import atexit
import gc
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import TyperException

EXIT_INTERRUPTED = 130
GARBAGE = 50_000
"""Objects that Python makes before it looks for cycles: it would go 200 times through what is imported, which stays."""
_NUMBERS = {"int": "a whole number", "float": "a number"}
_KIND_OF_NUMBER = re.compile(r"a valid (int|float)( range)?\b")
_RANGE = re.compile(r"(\S+) is not in the range (?:(\S+)<=)?x(?:<=(\S+)|>=(\S+))?\.")


def main() -> None:
    # gRPC's own log goes to the standard error, where one line is for the person at the terminal.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a locale without UTF-8, or a name that is none, ends no command
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    atexit.register(
        gc.freeze
    )  # Python's last collection would go through all modules, which takes 50 ms and frees nothing
    gc.set_threshold(GARBAGE)
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; `tidelog.cli.errors` names those that are not 0."""
    from tidelog.cli import errors

    try:
        code = _run(args)
    except BrokenPipeError:
        code = errors.CLOSED_PIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _complain(f"{where}{error.strerror or error}", errors.exit_code_of(error))
    if code == errors.CLOSED_PIPE or not _flushed():
        # Python would flush again when it ends, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _run(args: Sequence[str]) -> int:
    import logging

    import typer
    from typer import Exit, TyperException

    from tidelog.cli import errors
    from tidelog.cli.table import command
    from tidelog.errors import TidelogError, TransportError

    logging.basicConfig(format="tidelog: %(message)s")  # warnings of the client, like errors
    try:
        code = command().main(args=list(args), prog_name="tidelog", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Exit as end:
        return end.exit_code
    except SystemExit as end:
        # rich ends the program when its output is a closed pipe.
        if isinstance(end.__context__, BrokenPipeError):
            return errors.CLOSED_PIPE
        raise
    except TyperException as error:
        if not error.format_message():
            return error.exit_code  # a group without a command: rich has printed its help
        return _complain(_told(error), error.exit_code)
    except errors.CommandError as error:
        return _complain(str(error), error.exit_code)
    except TidelogError as error:
        return _complain(errors.told(error), errors.exit_code_of(error))
    except TransportError as error:
        return _complain(f"the connection broke: {error}", errors.FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return errors.INTERRUPTED
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - what no other clause knows is a bug
        return _complain(errors.bug(error, args), errors.BUG)


def _flushed() -> bool:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        return False
    return True


def _complain(message: str, exit_code: int) -> int:
    if sys.stderr is not None:
        for line in message.splitlines() or [""]:
            print(f"tidelog: {line}", file=sys.stderr)
    return exit_code


def _told(error: "TyperException") -> str:
    """The parser's error in the words of ours, what to do, and which help has more."""
    said = " ".join(error.format_message().split())  # a list of choices comes in lines
    said = _KIND_OF_NUMBER.sub(lambda found: _NUMBERS[found[1]], said)
    said = _RANGE.sub(lambda found: f"must be {_limits(*found.groups()[1:])}, not {found[1]}.", said)
    said += "" if said.endswith((".", "?")) else "."
    context = getattr(error, "ctx", None)
    if context is None:
        return said
    if said.startswith("No such option") and hasattr(context.command, "commands"):
        said += " Options of a command, such as --bootstrap-server, stand after its name."
    return f"{said} See `{context.command_path} --help`."


def _limits(low: str | None, high: str | None, least: str | None) -> str:
    if low is not None:
        return f"from {low} to {high}"
    return f"at most {high}" if least is None else f"at least {least}"


if __name__ == "__main__":
    main()
