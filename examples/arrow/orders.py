"""Orders of a topic as a table: read by Arrow, asked with SQL, and summed up by Polars.

``python -m examples.arrow.orders [URL]``; it needs the extras ``polars`` and ``duckdb``. It fills a
topic of its own first.
"""

from __future__ import annotations

import sys

import duckdb
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types

from iggy_sdk import JsonSerde
from iggy_sdk.blocking import IggyClient
from iggy_sdk.duckdb import register
from iggy_sdk.polars import scan_iggy

URL = "iggy://iggy:iggy@127.0.0.1:8090"
STREAM, TOPIC = "analysis", "orders"
ORDER = pa.schema([("id", pa.int64()), ("item", pa.string()), ("cups", pa.int64())])
ITEMS = ("tea", "coffee", "cocoa")


def fill(client: IggyClient) -> None:
    """Send 900 orders to three partitions."""
    client.create_stream(STREAM, exist_ok=True)
    client.create_topic(STREAM, TOPIC, partitions_count=3)
    with client.producer(STREAM, TOPIC, serde=JsonSerde()) as producer:
        for partition in range(3):
            orders = [
                {"id": number, "item": ITEMS[number % 3], "cups": 1 + number % 4}
                for number in range(partition, 900, 3)
            ]
            producer.send_many(orders, partition_id=partition)


def ask(client: IggyClient) -> None:
    """Ask the same topic in three ways."""
    table = client.read_arrow(STREAM, TOPIC, schema=ORDER)
    print(f"Arrow: {table.num_rows} orders, {len(table.column_names)} columns")

    with duckdb.connect() as connection:
        register(connection, client, STREAM, schema=ORDER)
        query = (
            f"SELECT payload.item, sum(payload.cups) FROM {STREAM}.{TOPIC} GROUP BY 1 ORDER BY 1"
        )
        for item, cups in connection.sql(query).fetchall():
            print(f"DuckDB: {cups} cups of {item}")

    lazy = scan_iggy(client, STREAM, TOPIC, schema=ORDER)
    last = lazy.filter(pl.col("offset") >= 295).select(pl.col("payload").struct.field("cups").sum())
    print(f"Polars: {last.collect().item()} cups in the last 5 orders of each partition")


def main(arguments: list[str]) -> None:
    """Use the server that the command line names."""
    with IggyClient(arguments[0] if arguments else URL) as client:
        fill(client)
        ask(client)


if __name__ == "__main__":
    main(sys.argv[1:])
