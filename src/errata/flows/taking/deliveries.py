"""Which files of a batch are new, and under which id it is taken in.

A delivery is idempotent, a content is not: a file that says again what an earlier one said is a new fact, unless it is
the same file of the same delivery. A batch that was given an id is known by that alone. Of the others a named file is
known by its name and content, a landed one also by its modification time. What a batch brought that has been undone
since may come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from errata.catalog import ledger
from errata.catalog.ledger import Taken
from errata.catalog.streams import Standing
from errata.errors import Refused
from errata.flows.site import Site
from errata.flows.taking.landing import landing_root, taken_folder
from errata.model.batch import Delivery, SourceFile, check_batch_id, content_hash, delivery_hash
from errata.model.stream import Then


@dataclass(frozen=True, slots=True)
class Named:
    """Files that have been looked at, and the id of the batch that they are."""

    batch_id: str
    content: str
    files: Sequence[SourceFile]
    guarded: bool = True
    """Whether what others bring meanwhile may be the same delivery."""
    earlier: Sequence[Delivery] = ()
    """Files with one of these contents that came before."""
    again_of: int | None = None
    """The batch of which it is another take."""

    @property
    def known(self) -> frozenset[int]:
        """The batches that had brought one of the contents."""
        return frozenset(each.batch_no for each in self.earlier)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Files that are new, and those that earlier batches have brought."""

    new: Sequence[SourceFile]
    known: Sequence[tuple[SourceFile, Delivery]]
    earlier: Sequence[Delivery]
    """All files of earlier batches with a content of the new ones."""


def sort_out(site: Site, of: Standing, files: Sequence[SourceFile], *, landed: bool) -> Sorted:
    """Tell the files that have been delivered before from the others."""
    earlier = ledger.deliveries(site.catalog, of.stream_id, [file.sha256 for file in files])
    root = landing_root(of.stream) if landed else None
    # A kept file lies there whatever becomes of its batch: an undo would otherwise last until the next run.
    final = landed and of.stream.landing is not None and of.stream.landing.then is Then.KEEP
    counting = [each for each in earlier if final or each.undone_in is None]
    known = []
    new = []
    put_away = taken_folder(of.stream)
    for file in files:
        delivery = next((each for each in reversed(counting) if each.is_of(file, root, put_away)), None)
        if delivery is None:
            new.append(file)
        else:
            known.append((file, delivery))
    contents = {file.sha256 for file in new}
    return Sorted(new, known, [each for each in earlier if each.sha256 in contents])


def named(site: Site, of: Standing, found: Sorted, *, landed: bool, guarded: bool = True) -> Named:
    """The new files of a delivery that was given no id. Where it has been taken in before, it is another take."""
    own = delivery_hash(found.new, landed=landed)
    return _another_take(site, of, Named(own, content_hash(found.new), found.new, guarded, found.earlier))


def named_so(site: Site, of: Standing, files: Sequence[SourceFile], batch_id: str) -> Named | Taken:
    """The files under the id that they were given, or the batch of that id if that has been taken in and stands."""
    content = content_hash(files)
    takes = ledger.takes(site.catalog, of.stream_id, check_batch_id(batch_id))
    for each in takes:
        if each.content_hash != content:
            raise other_content(each)
    standing = [each for each in takes if each.undone_in is None]
    if standing:
        return standing[-1]
    earlier = ledger.deliveries(site.catalog, of.stream_id, [file.sha256 for file in files])
    return _another_take(site, of, Named(batch_id, content, files, guarded=False, earlier=earlier))


def _another_take(site: Site, of: Standing, wanted: Named) -> Named:
    takes = ledger.takes(site.catalog, of.stream_id, wanted.batch_id)
    if not takes:
        return wanted
    free = ledger.free_take_id(site.catalog, of.stream_id, wanted.batch_id)
    return replace(wanted, batch_id=free, again_of=takes[0].batch_no)


def other_content(taken: Taken) -> Refused:
    """That an id has been given to two contents."""
    undone = f"; it was undone in commit {taken.undone_in}" if taken.undone_in is not None else ""
    return Refused(
        f"batch {taken.batch_id} was taken in before, with other content",
        why=f"commit {taken.commit_id} holds what it said then{undone}",
        how="give these files a batch id of their own; corrections of rows go in as rows with _op",
    )


def undone_before(repeated: Iterable[Delivery]) -> dict[str, int]:
    """The batches that said the same and have been undone, and the commits that did it."""
    return {each.batch_id: each.undone_in for each in repeated if each.undone_in is not None}


def standing_before(repeated: Iterable[Delivery]) -> list[str]:
    """The batches that said the same, and still stand."""
    return list(dict.fromkeys(each.batch_id for each in repeated if each.undone_in is None))
