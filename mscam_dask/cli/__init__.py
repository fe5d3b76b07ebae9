"""`mscam-dask ingest | run | resume | compare | sweep | describe | report | doctor | tls`.

This module imports Click and nothing heavier; what a command needs is imported when it runs, so
that `--help` and a mistyped option answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mscam_dask import __version__
from mscam_dask.cli.errors import handle_errors
from mscam_dask.cli.extensions import installed_extensions
from mscam_dask.cli.options import execution_options, no_url, with_options

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


# What runs the tasks of a run, and how its progress is shown.
_execution_options = with_options(
    *execution_options(in_process="run in this process"),
    click.option(
        "--threads", type=click.IntRange(min=1), help="Threads of a worker, or with --in-process."
    ),
    click.option("--plain", is_flag=True, help="One line per iteration, as in a log."),
)


class _Commands(click.Group):
    """The commands of this module, and those of extensions."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *_added_commands()])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return super().get_command(context, name) or _added_commands().get(name)


def _added_commands() -> dict[str, click.Command]:
    return {
        str(command.name): command for one in installed_extensions() for command in one.commands
    }


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="mscam-dask")
def main() -> None:
    """Cluster objects seen through several views.

    Exit codes: 0 ok, 2 configuration, 3 data, 4 cluster, 5 not converged (results are
    written), 75 try again later.
    """


@main.command()
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR|URL",
    help="Store to make; also at s3:// or gs://.",
)
@click.option(
    "--view",
    "views",
    multiple=True,
    metavar="NAME",
    help="Take this view, or those of this cell array; repeat.",
)
@click.option(
    "--view-type",
    "metrics",
    multiple=True,
    metavar="[VIEW=]KIND",
    help="features, distance or kernel, of all views or of one; repeat.",
)
@click.option("--labels", metavar="NAME|FILE", help="Ground truth: a variable, a column or a file.")
@click.option(
    "--samples-in",
    type=click.Choice(["rows", "columns"]),
    default="rows",
    show_default=True,
    help="Where the samples are in matrices.",
)
@click.option("--header/--no-header", default=None, help="Whether text files name their columns.")
@click.option("--id-column", metavar="NAME|N", help="Column of text files with sample ids.")
@click.option("--delimiter", metavar="CHAR", help="Of text files.")
@click.option("--chunk-rows", type=click.IntRange(min=1), help="Samples per chunk.")
@click.option("--overwrite", is_flag=True, help="Replace a store that is there.")
@click.option(
    "--append", "append_samples", is_flag=True, help="Add the samples to a store that is there."
)
@handle_errors
def ingest(**options: Any) -> int:
    """Turn files of several views into one store.

    SRC are .npz, .npy, .mat, .csv, .tsv, text, NetCDF or Zarr, or a directory with the UCI mfeat
    files; row i is sample i in every view.
    """
    from mscam_dask.cli.ingest import ingest_files

    return ingest_files(**options)


@main.command()
@click.argument("pipeline", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a setting of the file, for example cluster.n_clusters=7; repeat.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    callback=no_url,
    help="Run directory; by default runs/<pipeline>-<digest of settings and data>.",
)
@click.option("--overwrite", is_flag=True, help="Run in any case, replacing what is there.")
@click.option("--dry-run", is_flag=True, help="Show bytes, memory and time; start nothing.")
@_execution_options
@handle_errors
def run(**options: Any) -> int:
    """Run a pipeline file.

    Ingests the data, clusters, compares with labels where there are any, and writes a run
    directory. What was done before is not done again, what was cut off is gone on with. Starts Dask
    workers on this computer unless --in-process or --scheduler says otherwise; the
    result is the same. Interrupt with Ctrl-C; `mscam-dask resume` continues. The file of an
    experiment does what `mscam-dask compare` or `sweep` would.
    """
    from mscam_dask.pipeline.run.lock import raise_if_locked

    if options["output"] is not None:
        raise_if_locked(options["output"].absolute())
    from mscam_dask.cli.run import run_file

    return run_file(**options)


@main.command()
@click.argument("run_directory", metavar="RUN_DIR", type=click.Path(path_type=Path))
@_execution_options
@handle_errors
def resume(**options: Any) -> int:
    """Continue a run that was interrupted, failed or killed.

    Goes on from the last checkpoint, with the settings that the run directory records, to the
    result that the run would have had undisturbed. Options replace what ran the tasks. A run that
    has finished is left as it is.
    """
    from mscam_dask.pipeline.run.lock import raise_if_locked

    raise_if_locked(options["run_directory"].absolute())
    from mscam_dask.cli.run import resume_directory

    return resume_directory(**options)


@main.command()
@click.argument("path", metavar="STORE_OR_DIR")
@handle_errors
def describe(path: str) -> int:
    """Show what a store or the directory of a run or an experiment holds."""
    from mscam_dask.cli.describe import describe_path

    return describe_path(path)


@main.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; by default report.html in the directory.",
)
@click.option("--open", "show_in_browser", is_flag=True, help="Open it in the browser.")
@handle_errors
def report(**options: Any) -> int:
    """Write the report of a run or an experiment: one HTML file that needs no network.

    `mscam-dask run` writes one at its end; this makes it again, or for a run of an older version.
    """
    from mscam_dask.cli.report import report_run

    return report_run(**options)


@main.command()
@handle_errors
def doctor() -> int:
    """Check that pipelines can run here.

    Each check says what it found and, where something is wrong, what to do. The exit code is 1
    when a check failed.
    """
    from mscam_dask.cli.doctor import examine

    return examine()


@main.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Computer of the cluster; repeat."
)
@click.option("--days", type=float, default=365.0, show_default=True, help="Until they expire.")
@click.option(
    "--renew",
    is_flag=True,
    help="New certificates of the authority that is in DIR; none outlives it.",
)
@handle_errors
def tls(directory: Path, **options: Any) -> int:
    """Make certificates for a cluster that encrypts.

    Writes an authority and the certificates and keys of scheduler, workers and client into DIR,
    readable by you alone, and shows the commands that use them.
    """
    from mscam_dask.cli.tls import make_tls_directory

    return make_tls_directory(directory, **options)
