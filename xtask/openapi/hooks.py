"""What schemathesis cannot read off the description."""

import datetime
import json

import schemathesis
from hypothesis import strategies as st

# A correction belongs to an hour since 1970; JSON Schema knows only that it is a date and a time.
moments = st.datetimes(min_value=datetime.datetime(1970, 1, 2), max_value=datetime.datetime(9000, 1, 1))
schemathesis.openapi.format("date-time", moments.map(lambda at: at.isoformat(timespec="milliseconds") + "Z"))

# A body of lines is text to JSON Schema; what is in the lines it does not know.
events = st.fixed_dictionaries(
    {"type": st.sampled_from(["video.viewed", "ad.shown", "nobody.listens"])},
    optional={
        "eventId": st.text(min_size=1, max_size=8),
        "session": st.text(min_size=1, max_size=8),
        "seq": st.integers(min_value=0, max_value=2**64 - 1),
        "dimensions": st.dictionaries(st.sampled_from(["video", "ad", "country"]), st.text(max_size=8), max_size=3),
    },
)
lines = st.lists(events, min_size=1, max_size=5).map(lambda some: "\n".join(json.dumps(one) for one in some).encode())
schemathesis.openapi.media_type("application/x-ndjson", lines)


@schemathesis.serializer("application/x-ndjson")
def as_lines(_, value):
    return value if isinstance(value, bytes) else str(value).encode()


def whole(value):
    """5.0 is an integer to JSON Schema, and none to Tally, which says so (docs/formats/events.md)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


@schemathesis.hook
def map_body(_, body):
    return whole(body)


def depends(case):
    """Parameters that only go together, which a description cannot say."""
    query, body = case.query or {}, case.body if isinstance(case.body, dict) else {}
    waits_for_nothing = any("wait_ms" in place and "at_least" not in place for place in (query, body))
    once = any(name.lower() == "idempotency-key" for name in case.headers or {})
    # An ad-hoc counter, which most ids are, is deleted without a reason and without a key.
    reason_for_ad_hoc = case.method == "DELETE" and case.path == "/v1/counters/{id}" and (query or once)
    return waits_for_nothing or reason_for_ad_hoc


@schemathesis.hook
def filter_case(_, case):
    return not depends(case)
