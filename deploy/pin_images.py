#!/usr/bin/env python3
"""deploy/pin_images.py: names the images of Dockerfile and compose.yaml by digest, or renews the digests.

An image with a tag becomes IMAGE:TAG@sha256:..., the digest that its registry gives for the tag now.
Nothing is changed unless every image has an answer. Our own image has no registry and keeps its tag.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

FILES = ("Dockerfile", "compose.yaml")
IMAGE = re.compile(
    r"^(FROM |    image: )([\w./:-]+:[\w.-]+?)(@sha256:[0-9a-f]{64})?(?=\s|$)", re.MULTILINE
)
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
SECONDS = 30


def place(image: str) -> tuple[str, str, str]:
    """Registry, repository and tag of an image; without a registry it is one of Docker Hub."""
    name, _, tag = image.rpartition(":")
    first, slash, rest = name.partition("/")
    if slash and (set(".:") & set(first) or first == "localhost"):
        return first, rest, tag
    return "registry-1.docker.io", name if slash else f"library/{name}", tag


def token(challenge: str) -> str:
    """Anonymous token that a registry asks for: `Bearer realm="...",service="...",scope="..."`."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode(
        {key: fields[key] for key in ("service", "scope") if key in fields}
    )
    with urllib.request.urlopen(f"{fields['realm']}?{query}", timeout=SECONDS) as answer:
        read = json.load(answer)
    return str(read.get("token") or read["access_token"])


def digest(image: str) -> str:
    """Digest of the manifest (of all platforms, where there is one) that a tag names now."""
    registry, repository, tag = place(image)
    scheme = "http" if registry.startswith(("localhost", "127.0.0.1")) else "https"
    request = urllib.request.Request(
        f"{scheme}://{registry}/v2/{repository}/manifests/{tag}",
        headers={"Accept": MANIFESTS},
        method="HEAD",
    )
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        request.add_header("Authorization", f"Bearer {token(error.headers['WWW-Authenticate'])}")
        answer = urllib.request.urlopen(request, timeout=SECONDS)
    with answer:
        found = answer.headers.get("Docker-Content-Digest", "")
    if not re.fullmatch("sha256:[0-9a-f]{64}", found):
        raise ValueError(f"the registry gave {found!r} in the place of a digest")
    return found


def main(directory: Path) -> int:
    """Pin the images of the files of a directory; 0 where that worked."""
    texts = {directory / name: (directory / name).read_text(encoding="utf-8") for name in FILES}
    images = sorted({found[2] for text in texts.values() for found in IMAGE.finditer(text)})
    digests = {}
    for image in images:
        try:
            digests[image] = digest(image)
        except (OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"{image}: no digest ({error}). No file was changed.\n")
            return 1
        sys.stdout.write(f"{image}@{digests[image]}\n")
    for path, text in texts.items():
        path.write_text(
            IMAGE.sub(lambda found: f"{found[1]}{found[2]}@{digests[found[2]]}", text),
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
