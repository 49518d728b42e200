"""One join for many queries gives what each query's own join gives; a composite finds the pairs of its hybrids."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from bench.psoup_probes import composite_probe, measure_probes, separate_probe

from errata.model.registered import Comparison, Relation
from errata.psoup import composites
from errata.psoup.composites import join_for_queries
from errata.psoup.joins import join_rows
from errata.psoup.row_sets import RowSet

RELATIONS = {
    "equality": [Relation(0, "k", Comparison.EQUAL, 1, "k")],
    "band": [Relation(0, "t", Comparison.GREATER, 1, "t", -5), Relation(0, "t", Comparison.AT_MOST, 1, "t")],
    "both": [Relation(0, "k", Comparison.EQUAL, 1, "k"), Relation(0, "t", Comparison.LESS, 1, "t")],
}


def random_table(chance: random.Random, rows: int) -> pa.Table:
    return pa.table(
        {
            "k": [chance.choice([None, 1, 2, 3, 4]) for _ in range(rows)],
            "t": [chance.randrange(50) for _ in range(rows)],
        }
    )


@pytest.mark.parametrize("relations", RELATIONS.values(), ids=RELATIONS)
@pytest.mark.parametrize("queries", [0, 1, 7, 40])
def test_one_join_for_many_queries_gives_each_its_own(
    chance: random.Random, monkeypatch: pytest.MonkeyPatch, relations: list[Relation], queries: int
) -> None:
    monkeypatch.setattr(composites, "_BITS_AT_ONCE", 50)
    tables = [random_table(chance, 40), random_table(chance, 60)]
    selected = []
    for _ in range(queries):
        share = chance.choice([0.0, 0.1, 0.9])
        masks = [np.array([chance.random() < share for _ in range(each.num_rows)], dtype=bool) for each in tables]
        selected.append([RowSet.of_mask(each) for each in masks])
    found = join_for_queries(tables, relations, selected)
    assert len(found) == queries
    for sets, own in zip(selected, found, strict=True):
        rows = [np.asarray(each.positions, dtype=np.int64) for each in sets]
        alone = join_rows([table.take(pa.array(each)) for table, each in zip(tables, rows, strict=True)], relations)
        expected = [each[places].tolist() for each, places in zip(rows, alone, strict=True)]
        assert [each.tolist() for each in own] == expected


def test_pairs_that_no_query_has_alone_are_nobodys() -> None:
    tables = [pa.table({"k": [1, 1]}), pa.table({"k": [1, 1]})]
    first, second = (RowSet.of_mask(np.array(mask)) for mask in ([True, False], [False, True]))
    nobody = RowSet.of_mask(np.array([False, False]))
    found = join_for_queries(tables, RELATIONS["equality"], [[first, nobody], [nobody, second]])
    assert [[each.tolist() for each in own] for own in found] == [[[], []], [[], []]]


@pytest.mark.parametrize(("relation", "shared"), list(product(Comparison, Comparison)))
def test_a_composite_finds_the_pairs_of_its_hybrids(
    chance: random.Random, relation: Comparison, shared: Comparison
) -> None:
    compares = {
        Comparison.LESS: np.less,
        Comparison.AT_MOST: np.less_equal,
        Comparison.EQUAL: np.equal,
        Comparison.AT_LEAST: np.greater_equal,
        Comparison.GREATER: np.greater,
    }
    values, probed = (np.array([chance.randrange(20) for _ in range(30)]) for _ in range(2))
    constant = chance.randrange(-1, 21)
    pairs = compares[relation](values[:, None], probed[None, :]) & compares[shared](probed, constant)
    index = np.sort(probed)
    assert composite_probe(values, index, relation, shared, constant) == int(pairs.sum())
    assert separate_probe(values, index, relation, shared, constant) == int(pairs.sum())
    assert measure_probes(values, probed, relation, shared, constant).pairs == int(pairs.sum())
