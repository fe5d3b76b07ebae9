"""CPU seconds and memory that each hostile file takes until it is refused: ``python -m tests.benchmarks.hostile_files``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.hostile_files import CANARY, HOSTILE, write_canary

ROOT = Path(__file__).parents[2]


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.ingest_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        canary = Path(directory) / "canary.h5"
        write_canary(canary)
        sys.stdout.write(f"{'file':32} {'outcome':8} {'CPU s':>6} {'MB':>6}\n")
        for name, write in sorted(HOSTILE.items()):
            path = Path(directory) / name / name
            path.parent.mkdir()
            write(path, canary)
            request = {
                "path": str(path),
                "output": str(path.parent / "out.zarr"),
                "canary": float(CANARY[0, 0]),
            }
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            found = json.loads(child.stdout.readline())
            megabytes = found.get("memory_bytes", 0) / 1e6
            sys.stdout.write(
                f"{name:32} {found['outcome']:8} {found.get('cpu_seconds', 0.0):6.2f} {megabytes:6.0f}\n"
            )


if __name__ == "__main__":
    main()
