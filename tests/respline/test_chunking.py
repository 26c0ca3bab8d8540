"""However the network cuts the stream of replies into pieces, the callers get the same replies."""

import asyncio
import itertools
from typing import Any

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

import respline
from tests.respline.wires import listening

Shape = Any

_scalars = st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40)
_replies = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=10)


def on_the_wire(reply: Shape) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(on_the_wire, reply))


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=60, deadline=None)
@given(
    replies=st.lists(_replies, min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
    together=st.integers(0, 12),
    protocol=st.sampled_from([2, 3]),
)
def test_any_chunking_gives_the_same_replies(
    replies: list[Shape], cuts: list[int], together: int, protocol: int
) -> None:
    stream = b"".join((b">1\r\n+push\r\n" if protocol == 3 else b"") + on_the_wire(reply) for reply in replies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await reader.readuntil(b"INFO\r\n")
        writer.write(b"%0\r\n" * (b"HELLO" in greeting) + b"$0\r\n\r\n")
        await reader.readexactly(len(b"*1\r\n$4\r\nNEXT\r\n") * len(replies))
        for piece in pieces(stream, cuts):
            writer.write(piece)
            # A piece per packet, as far as a loopback allows it.
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def ask() -> list[Shape]:
        async with (
            listening(serve) as port,
            await respline.open_line(f"redis://127.0.0.1:{port}", protocol=protocol, timeout=30) as line,
        ):
            listed = min(together, len(replies))
            many = line.call_many([("NEXT",)] * listed)
            singles = [line.call("NEXT") for _ in range(len(replies) - listed)]
            answers = await many + list(await asyncio.gather(*singles))
            assert line.counters.pushes_dropped == (len(replies) if protocol == 3 else 0)
            return answers

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == replies
