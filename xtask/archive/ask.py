"""Asks an archive a question with DuckDB. Arguments: the archive's directory and the statement. Prints seconds and rows as JSON.

DuckDB reads the files that the table names, without a look at Iceberg's metadata while time is taken.
"""

import json
import sys
import time

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

directory, statement = sys.argv[1:]
catalog = SqlCatalog("tally", uri=f"sqlite:///{directory}/catalog.sqlite", warehouse=f"file://{directory}")
tasks = catalog.load_table("tally.events").scan().plan_files()
files = [task.file.file_path.removeprefix("file://") for task in tasks]
database = duckdb.connect()
database.sql(f"CREATE VIEW events AS SELECT * FROM read_parquet({files!r})")
begun = time.monotonic()
rows = database.sql(statement).fetchall()
print(json.dumps({"seconds": time.monotonic() - begun, "rows": rows}))
