"""Command line; each command imports its dependencies when it runs, so that `--help` is fast."""

from __future__ import annotations

import click

from mscam_dask import __version__
from mscam_dask.cli.errors import lazy_command
from mscam_dask.cli.options import (
    PATH,
    execution_options,
    file_options,
    installed_extensions,
    key_option,
    run_directory,
    with_options,
)
from mscam_dask.pipeline.settings import DataTable, ReportTable

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


_execution_options = with_options(
    *execution_options(),
    click.option("--plain", is_flag=True, help="Progress as lines of a log."),
)
_max_bytes = key_option(DataTable, "max_bytes")


class _Commands(click.Group):
    """Commands of this module and of extensions."""

    def list_commands(self, context: click.Context) -> list[str]:
        for extension in installed_extensions():
            for command in extension.commands:
                if self.commands.setdefault(command.name, command) is not command:
                    place = f"{type(extension).__module__}:{type(extension).__name__}"
                    click.echo(
                        f"The command {command.name!r} of the extension {place} is ignored: mscam-dask has "
                        "another one of this name. Rename it there, or uninstall its package.",
                        err=True,
                    )
        return super().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.commands:
            self.list_commands(context)
        return super().get_command(context, name)


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="mscam-dask")
def main() -> None:
    """Multi-view subspace clustering.

    Exit codes: 0 success, 1 internal error, 2 configuration, 3 data, 4 cluster, 75 temporary failure
    (retry later), 130 interrupted. Results are written with 5 (a method of a comparison has
    none for a data set) and 6 (drift above the limit).
    """


@main.command()
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR|URL",
    help="Store to write; may be an s3://, gs:// or az:// URL.",
)
@key_option(DataTable, "views", "--view", multiple=True, metavar="NAME")
@key_option(DataTable, "view_type", multiple=True, metavar="[VIEW=]KIND")
@key_option(DataTable, "labels", metavar="NAME|FILE")
@key_option(DataTable, "samples_in", multiple=True, metavar="[VIEW=]rows|columns")
@key_option(DataTable, "header", "--header/--no-header", is_flag=True, default=None)
@key_option(DataTable, "id_column", type=str, metavar="NAME|N|none")
@key_option(DataTable, "delimiter", metavar="CHAR")
@key_option(DataTable, "decimal", metavar=".|,")
@key_option(DataTable, "comment", metavar="TEXT")
@key_option(DataTable, "skip", metavar="N")
@key_option(DataTable, "join", metavar="inner|outer")
@key_option(DataTable, "impute", metavar="mean|median|knn")
@key_option(DataTable, "chunk_size", metavar="N")
@_max_bytes
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@click.option(
    "--append", "append_samples", is_flag=True, help="Append the samples to an existing store."
)
@lazy_command("mscam_dask.cli.prepare:ingest_files")
def ingest() -> None:
    """Write the files of several views into one store.

    SRC is a .npz, .npy, .mat, .csv, .tsv, .xlsx, .parquet, .feather, .h5ad, .h5mu, text, NetCDF or
    Zarr file. Samples are matched by their ids, and by row only where the files have none.
    """


@main.command()
@click.argument("pipeline", metavar="PIPELINE.toml", type=PATH)
@with_options(
    *file_options("Run directory; default: runs/<pipeline>-<digest of settings and data>.")
)
@_max_bytes
@_execution_options
@lazy_command("mscam_dask.cli.run:run_file")
def run() -> None:
    """Run a pipeline file.

    Ingests the data, clusters, scores the clusters against ground truth if there is any, and
    writes a run directory. Runs are idempotent: a finished run is not repeated, an interrupted one
    (Ctrl-C) is resumed. The tasks run on Dask workers of this computer, unless --in-process,
    --cluster or --scheduler is given; the result is the same. An experiment file ([compare],
    [robustness], [sweep]) is dispatched to the matching command.
    """


@main.command()
@_execution_options
@lazy_command("mscam_dask.cli.run:run_quickstart")
def quickstart() -> None:
    """Cluster 1797 handwritten digits from five views: a first run.

    Writes quickstart.toml to the current directory, unless there is one, and runs it.
    """


@main.command()
@click.argument("run_directory", metavar="RUN_DIR", type=run_directory)
@_execution_options
@lazy_command("mscam_dask.cli.run:resume_directory")
def resume() -> None:
    """Resume a run that was interrupted, failed or killed.

    Continues from the last checkpoint with the recorded settings, and gives the result of an
    uninterrupted run. Options select another executor. A finished run is not changed.
    """


@main.command()
@click.argument("run", metavar="RUN_DIR", type=PATH)
@click.argument("sources", metavar="NEW...", nargs=-1, required=True)
@click.option(
    "--batches",
    metavar="FILE|NAME",
    help="Batch of each new sample, if the run has batches: a file, or a column of obs.",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    metavar="FILE",
    help="File to write, .csv or .parquet; default: CSV on standard output.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@lazy_command("mscam_dask.cli.commands:predict_samples")
def predict() -> None:
    """Predict the clusters of new samples with a finished run.

    NEW is a store, or files with the same views and columns as those of the run, read with its
    settings; excluded views may be missing. Each sample gets a cluster, a confidence and the next
    best cluster.
    """


@main.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--status",
    type=click.Choice(["running", "finished", "failed", "interrupted"]),
    multiple=True,
    help="Only runs in this state; repeatable.",
)
@click.option(
    "--since", metavar="TIME", help="Only runs that started then or later (ISO 8601, UTC)."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="PATTERN",
    help="Only runs whose directory matches, for example 'nightly-*'; repeatable.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Compare settings, scores and partitions of the finished runs that are listed.",
)
@click.option("--html", type=PATH, metavar="FILE", help="Write an index page.")
@lazy_command("mscam_dask.cli.commands:show_runs")
def runs() -> None:
    """List the runs in a directory, and compare them.

    The agreement of two runs is the adjusted Rand index of their clusters on common samples. The
    index page links the reports and needs no network.
    """


@main.command()
@click.argument("place", metavar="STORE|DIR|URL")
@lazy_command("mscam_dask.cli.commands:describe_path")
def describe() -> None:
    """Describe a store, a run, several runs, or an experiment."""


@main.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="File to write; default: report.html in the directory.",
)
@key_option(ReportTable, "columns", type=PATH)
@click.option("--open", "show_in_browser", is_flag=True, help="Open the report in the browser.")
@lazy_command("mscam_dask.cli.commands:report_run")
def report() -> None:
    """Write the report of a run or an experiment as one HTML file.

    The file needs no network. `mscam-dask run` writes the report at its end; this command writes it again.
    """


@main.command()
@click.argument("run", metavar="[RUN_DIR]", required=False, type=run_directory)
@lazy_command("mscam_dask.cli.commands:run_checks")
def doctor() -> None:
    """Check that pipelines can run here, or that a run is valid.

    A run is valid if its files and its data are unchanged, the connected components of its graph
    are the clusters, and rows of the graph and view contributions sum to one. Each check prints its
    result and, if there is a problem, the remedy. The exit code is 1 if a check failed.
    """


@main.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--days", type=float, default=365.0, show_default=True, help="Validity in days.")
@click.option(
    "--renew",
    is_flag=True,
    help="Make new certificates with the authority in DIR, valid at most as long as it is.",
)
@lazy_command("mscam_dask.cli.prepare:make_tls_directory")
def tls() -> None:
    """Make certificates for an encrypted cluster.

    Writes an authority and the certificates and keys of scheduler, workers and client into DIR,
    readable by you only, and prints the commands that use them.
    """
