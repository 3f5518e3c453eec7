"""`tidelog perf`: how fast this cluster takes and gives records, in the words of Kafka's own two tools."""

import typer

from tidelog.cli import perf_consume, perf_produce

app = typer.Typer(help="Measure how fast records are written and read.", no_args_is_help=True)
app.command("produce")(perf_produce.produce)
app.command("consume")(perf_consume.consume)
