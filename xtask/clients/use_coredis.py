"""The same with coredis, which shares no code with redis-py."""

import asyncio
import sys
from importlib.metadata import version

import coredis


async def main():
    host, port = sys.argv[1].split(":")
    r = coredis.Redis(host=host, port=int(port), decode_responses=True)
    other = coredis.Redis(host=host, port=int(port), db=2, decode_responses=True)
    await r.flushall()
    pipe = await r.pipeline(transaction=True)
    pipe.incr("a")
    pipe.incrby("a", 9)
    pipe.get("a")
    assert await pipe.execute() == (1, 10, "10")
    await other.set("a", 1)
    await other.flushdb()
    assert await other.dbsize() == 0 and await r.get("a") == "10"
    print("coredis", version("coredis"))


asyncio.run(main())
