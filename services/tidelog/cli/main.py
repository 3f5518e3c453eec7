"""`tidelog`: one command for the whole cluster. Errors are one line on the standard error and a non-zero exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer
from typer import Exit, TyperException

from tidelog.cli import (
    agent,
    brokers,
    chaos,
    cluster,
    config,
    configs,
    consume,
    elections,
    groups,
    local,
    log,
    logs,
    moves,
    offsets,
    perf,
    pipeline,
    produce,
    reassign,
    reset_offsets,
    top,
    topics,
    verifiable,
)
from tidelog.cli.common import CommandError
from tidelog.errors import TidelogError, TransportError

EXIT_INTERRUPTED: Final = 130

app = typer.Typer(
    name="tidelog",
    help="A replicated, partitioned log. Start with `tidelog local up`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
topics.app.command("offsets")(offsets.offsets)
app.add_typer(topics.app, name="topics")
app.command("get-offsets")(offsets.offsets)
app.add_typer(configs.app, name="configs")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("verifiable-producer")(verifiable.verifiable_producer)
app.command("verifiable-consumer")(verifiable.verifiable_consumer)
app.add_typer(perf.app, name="perf")
groups.app.command("reset-offsets")(reset_offsets.reset_offsets)
app.add_typer(groups.app, name="groups")
app.command("top")(top.top)
app.command("delete-records")(logs.delete_records)
app.add_typer(logs.dirs_app, name="log-dirs")
app.command("elect-leaders")(elections.elect_leaders)
brokers.app.command("release-veto")(elections.release_veto)
brokers.app.command("drain")(moves.drain)
cluster.app.command("add-brokers")(moves.add_brokers)
app.add_typer(brokers.app, name="brokers")
app.add_typer(reassign.app, name="reassign")
app.add_typer(agent.app, name="agent")
app.add_typer(cluster.app, name="cluster")
app.add_typer(log.app, name="log")
app.add_typer(config.app, name="config")
app.add_typer(local.app, name="local")
app.add_typer(chaos.app, name="chaos")
app.add_typer(pipeline.app, name="pipeline")


def main() -> None:
    # gRPC's own log goes to the standard error, where one line is for the person at the terminal.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code: 0, 1 failed, 2 not understood, 130 interrupted."""
    try:
        code = typer.main.get_command(app).main(args=list(args), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Exit as end:
        return end.exit_code
    except TyperException as error:
        said = " ".join(error.format_message().split())  # a list of choices comes in lines
        return _complain(f"{said} {_help_of(error)}".strip(), error.exit_code)
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except TidelogError as error:
        return _complain(error.message, 1)
    except TransportError as error:
        return _complain(f"the connection broke: {error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has had enough (head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", 1)
    except ValueError as error:
        return _complain(str(error), 2)


def _complain(message: str, exit_code: int) -> int:
    for line in message.splitlines() or [""]:
        print(f"tidelog: {line}", file=sys.stderr)
    return exit_code


def _help_of(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"See `{context.command_path} --help`." if context is not None else ""


if __name__ == "__main__":
    main()
