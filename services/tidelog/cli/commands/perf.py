"""`tidelog perf`: how fast this cluster takes and gives records, in the words of Kafka's own two tools."""

import typer

from tidelog.cli import perf_consume, perf_produce

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("produce")(perf_produce.produce)
app.command("consume")(perf_consume.consume)
