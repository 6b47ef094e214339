"""The statements of an upsert, as texts."""

from __future__ import annotations

from spark_jobs.jdbc.statements import RowMove, quote_name

MOVE = RowMove("s.orders", "s.staging", ["id", "item", "at", "n"], ["id"], ["at", "n"])


def test_insert_when_written_then_names_are_quoted():
    assert quote_name('a"b') == '"a""b"'
    assert MOVE.insert() == (
        'INSERT INTO s.orders ("id", "item", "at", "n") '
        'SELECT "id", "item", "at", "n" FROM s.staging'
    )


def test_upsert_when_rows_have_an_age_then_older_ones_replace_nothing():
    newer = (
        '(excluded."at" > target."at" OR (excluded."at" = target."at" AND '
        '(excluded."n" >= target."n")) OR target."at" IS NULL)'
    )

    assert MOVE.on_conflict().endswith(
        'ON CONFLICT ("id") DO UPDATE SET "item" = excluded."item", "at" = excluded."at", '
        f'"n" = excluded."n" WHERE {newer}'
    )
    assert f"WHEN MATCHED AND {newer.replace('excluded', 'source')} THEN UPDATE" in MOVE.merge()


def test_upsert_when_rows_have_no_age_then_they_replace_what_is_there():
    move = MOVE._replace(age=())

    assert "WHERE" not in move.on_conflict()
    assert 'WHEN MATCHED THEN UPDATE SET "item" = source."item"' in move.merge()


def test_upsert_when_all_columns_are_keys_then_nothing_is_updated():
    move = RowMove("t", "s", ["id"], ["id"], [])

    assert move.on_conflict().endswith('ON CONFLICT ("id") DO NOTHING')
    assert "UPDATE" not in move.merge()
