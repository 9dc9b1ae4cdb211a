"""Sends events with a client that openapi-python-client made, and the description's own examples as they are."""

import json
import sys
import urllib.request

server, package_parent = sys.argv[1:3]
sys.path.insert(0, package_parent)

from tally_python_client import Client
from tally_python_client.api.counters import get_counter, increment_counter
from tally_python_client.api.events import send_events
from tally_python_client.models import Change, Event, EventDimensions, Outcome

client = Client(base_url=server)


def viewed(video):
    return Event(type_="video.viewed", dimensions=EventDimensions.from_dict({"video": video}))


one = send_events.sync(client=client, body=viewed("by-client"))
assert isinstance(one, Outcome) and one.counted == 1, one
many = send_events.sync(client=client, body=[viewed("by-client"), viewed("by-client")], strict=True)
assert isinstance(many, Outcome) and many.counted == 2, many
assert get_counter.sync(id="views:by-client", client=client).value == 3
for _ in range(2):
    changed = increment_counter.sync(id="by-client", client=client, body=Change(delta=5), idempotency_key="once")
    assert changed.value == 5, changed

description = json.load(urllib.request.urlopen(f"{server}/openapi.json"))
for content_type, content in description["paths"]["/v1/events"]["post"]["requestBody"]["content"].items():
    example = content["example"]
    body = example if isinstance(example, str) else json.dumps(example)
    request = urllib.request.Request(f"{server}/v1/events", body.encode(), {"content-type": content_type})
    outcome = json.load(urllib.request.urlopen(request))
    assert outcome["counted"] == 1, (content_type, outcome)
print("  a client of openapi-python-client has sent events, and so have the examples at /docs")
