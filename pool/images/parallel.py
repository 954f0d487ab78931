"""A checkpoint of a job on several machines: the images of all its parts as one, kept or lost as one (VS 5.3).

The files of part N have names that begin with `N/`. The facts that restoring one part needs are among the facts of the
image, under `parts`; a part that had ended before has no files, and its report stands under `ends`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pool.images.manifest import ImageFile, Manifest

PARTS, ENDS = "parts", "ends"

Facts = tuple[tuple[str, Any], ...]


def merge_images(
    images: Mapping[int, Manifest], ends: Mapping[int, dict[str, Any]]
) -> tuple[tuple[ImageFile, ...], Facts]:
    """Files and facts of the whole.

    Args:
        images: of the parts that ran.
        ends: the reports of those that had ended.
    """
    files = tuple(
        replace(file, name=f"{number}/{file.name}") for number in sorted(images) for file in images[number].parts
    )
    said = {str(number): dict(images[number].facts) for number in sorted(images)}
    return files, ((ENDS, {str(number): dict(ends[number]) for number in sorted(ends)}), (PARTS, said))


def part_in(whole: Manifest, number: int) -> Manifest:
    """The image of one part, of a job of its own name."""
    begin = f"{number}/"
    files = tuple(
        replace(file, name=file.name.removeprefix(begin)) for file in whole.parts if file.name.startswith(begin)
    )
    facts = dict(whole.facts).get(PARTS, {}).get(str(number), {})
    return replace(whole, job=f"{whole.job}.{number}", parts=files, facts=tuple(sorted(facts.items())))


def ends_in(whole: Manifest) -> dict[int, dict[str, Any]]:
    """The parts that had ended, and their reports."""
    return {int(number): dict(report) for number, report in dict(whole.facts).get(ENDS, {}).items()}
