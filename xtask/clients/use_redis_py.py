"""What redis-py does by default: pipelines are transactions, and a client may choose a database."""

import sys

import redis

host, port = sys.argv[1].split(":")
r = redis.Redis(host=host, port=int(port), decode_responses=True)
other = redis.Redis(host=host, port=int(port), db=1, decode_responses=True)
r.flushall()

assert r.pipeline().incr("a").incrby("a", 9).get("a").expire("a", 100).ttl("a").execute() == [1, 10, "10", True, 100]

# A pipeline that fails as a whole has counted nothing.
try:
    r.pipeline().incr("a").execute_command("nosuch").execute()
    raise SystemExit("an unknown command went through")
except redis.ResponseError:
    assert r.get("a") == "10"

# One that fails in part has done the rest.
replies = r.pipeline().incr("b").execute_command("INCRBY", "b", "x").incr("b").execute(raise_on_error=False)
assert replies[0] == 1 and isinstance(replies[1], redis.ResponseError) and replies[2] == 2, replies


def double(pipe):
    before = int(pipe.get("a"))
    if double.disturbances:
        double.disturbances -= 1
        r.incr("a")
    pipe.multi()
    pipe.set("a", before * 2)


double.disturbances = 3
r.transaction(double, "a")
assert r.get("a") == "26", r.get("a")

with r.pipeline() as pipe:
    pipe.watch("a")
    r.incr("a")
    pipe.multi()
    pipe.incr("a")
    try:
        pipe.execute()
        raise SystemExit("a watched key that changed was not noticed")
    except redis.WatchError:
        pass

# Another database is flushed without this one.
other.set("a", 1)
assert other.dbsize() == 1 and other.keys() == ["a"] and r.dbsize() == 2
other.flushdb()
assert other.dbsize() == 0 and r.get("a") == "27"
print("redis-py", redis.__version__)
