"""Hourly counts in ClickHouse, inside this process (chdb): no network between it and whoever asks.

Reads what to do as one object of JSON from stdin and prints what was measured as one line of JSON. It is treated kindly: batches
of 100,000 rows in its own binary format, a table that is sorted by what is asked for, and merges that are finished before
anything is read. Only durability is not traded: an insert returns when its part is on disk.
"""

import json
import resource
import sys
import time

from chdb import session

TABLE = """
CREATE TABLE bench.hourly (key String, country LowCardinality(String), hour UInt32, n UInt64)
ENGINE = SummingMergeTree(n) ORDER BY (key, country, hour)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
"""


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def point(database, key, hours):
    """The counts of one key, by country and hour."""
    return database.query(
        f"SELECT country, hour, sum(n) FROM bench.hourly WHERE key = '{key}' AND hour >= {hours[0]} AND hour < {hours[1]} "
        "GROUP BY country, hour",
        "TSV",
    ).bytes()


def insert(database, batches):
    for batch in batches:
        database.query(
            "INSERT INTO bench.hourly SELECT key, country, hour, 1 "
            f"FROM file('{batch}', 'RowBinary', 'key String, country String, hour UInt32')"
        )


def timed_us(action):
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e6


def fresh_us(database, number, hours):
    """From the answer to an insert until a query shows it."""
    key = f"fresh{number}"
    database.query(f"INSERT INTO bench.hourly VALUES ('{key}', 'DE', {hours[0]}, 1)")

    def look():
        while not point(database, key, hours):
            pass

    return timed_us(look)


def main():
    plan = json.load(sys.stdin)
    hours = plan["hours"]
    database = session.Session(plan["data"])
    database.query("CREATE DATABASE bench ENGINE = Atomic")
    database.query(TABLE)
    cpu_before, began = cpu_seconds(), time.perf_counter()
    insert(database, plan["batches"])
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
    counted = int(database.query("SELECT sum(n) FROM bench.hourly", "TSV").bytes())
    database.query("OPTIMIZE TABLE bench.hourly FINAL")
    on_disk = "SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'bench' AND active"
    stored = int(database.query(on_disk, "TSV").bytes())
    measured = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "counted": counted,
        "bytes": stored,
        "query_us": [timed_us(lambda: point(database, key, hours)) for key in plan["keys"]],
        "fresh_us": [fresh_us(database, number, hours) for number in range(plan["fresh"])],
    }
    print(json.dumps(measured), flush=True)


main()
