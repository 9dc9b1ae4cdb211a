"""Reads an archive with two engines that share no code with Tally, and recounts it with the SQL of the guide.

Arguments: the archive's directory, and the guide's page with the SQL. From standard input: what the live counters say, and what
was sent, as JSON. Prints a line for each thing that was held against each other; ends with an error at the first that differs.
"""

import json
import re
import sys

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog

directory, guide = sys.argv[1:]
told = json.load(sys.stdin)


def same(what, found, expected):
    if found != expected:
        differing = sorted(set(found.items()) ^ set(expected.items())) if isinstance(found, dict) else (found, expected)
        sys.exit(f"{what}: {differing[:10] if isinstance(differing, list) else differing}")
    print(f"  {what}: the same")


# pyiceberg, by the catalog.
catalog = SqlCatalog("tally", uri=f"sqlite:///{directory}/catalog.sqlite", warehouse=f"file://{directory}")
events = catalog.load_table("tally.events").scan().to_arrow()
offsets = events.column("offset").to_pylist()
same("rows of pyiceberg, and how many offsets they have", len(set(offsets)), len(offsets))
sent = events.column("sent").to_pylist()
counts = {}
for number in sent:
    counts[number] = counts.get(number, 0) + 1
acknowledged, attempted = set(told["acknowledged"]), set(told["attempted"])
if not acknowledged <= set(counts) <= attempted:
    missing, strange = acknowledged - set(counts), set(counts) - attempted
    sys.exit(f"acknowledged and not there: {sorted(missing)[:10]}; there and never sent: {sorted(strange)[:10]}")
print(f"  all {len(acknowledged)} events that were acknowledged are there, and {len(counts) - len(acknowledged)} more")
same("rows of each event", max(counts.values()), 1)

# DuckDB, by the directory, with the SQL of the guide.
import_extension("avro")
import_extension("iceberg")
database = duckdb.connect()
database.load_extension("iceberg")
for table in ("events", "fates", "corrections", "base"):
    metadata = catalog.load_table(f"tally.{table}").metadata_location
    database.sql(f"CREATE VIEW {table} AS SELECT * FROM iceberg_scan('{metadata}')")
same("rows of DuckDB", database.sql("SELECT count(*) FROM events").fetchone()[0], len(offsets))
with open(guide, encoding="utf-8") as page:
    statements = dict(re.findall(r"```sql\n-- (\w+):[^\n]*\n(.*?)```", page.read(), re.S))
for counter, live in told["live"].items():
    recounted = {key: int(value) for key, value in database.sql(statements[counter]).fetchall() if value != 0}
    same(f"{counter} of {len(live)} keys, recounted", recounted, live)
    behind = {key: int(value) for key, value in database.sql(statements[f"{counter}_behind"]).fetchall() if value != 0}
    same(f"{counter}, a base and what fates does not name", behind, live)
