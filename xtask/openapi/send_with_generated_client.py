"""Sends events with a client that openapi-generator made."""

import sys

server, package_parent = sys.argv[1:3]
sys.path.insert(0, package_parent)

import tally_generated_client as tally
from tally_generated_client.models import Event, EventDimensionsValue, SendEventsRequest

with tally.ApiClient(tally.Configuration(host=server)) as client:
    event = Event(type="video.viewed", dimensions={"video": EventDimensionsValue("by-generated")})
    outcome = tally.EventsApi(client).send_events(SendEventsRequest([event, event]))
    assert outcome.counted == 2, outcome
    envelope = tally.CountersApi(client).get_counter("views:by-generated")
    assert envelope.value == 2, envelope
print("  a client of openapi-generator has sent events")
