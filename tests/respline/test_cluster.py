"""Three real nodes: routing, redirections during a real slot migration, a lost node."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import respline
from aisle.embedded.server import free_port
from respline import Cluster, NotSent, OutcomeUnknown, ServerError, key_slot
from respline.cluster import HOPS_MAX
from tests.patience import PATIENCE_SECONDS, eventually, until
from tests.respline.servers import Server
from tests.respline.wires import answering, listening

# The nodes are dear to start, so all these tests share one worker and one cluster.
pytestmark = pytest.mark.xdist_group("respline-cluster")

FAST = ("--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")


class Nodes:
    """The administrator's view of the cluster."""

    def __init__(self, directory: Path) -> None:
        self.servers: list[Server] = []
        for number in range(3):
            place = directory / str(number)
            place.mkdir()
            bus = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), *FAST)
            self.servers.append(Server(place, *bus).start())
        self.admins: list[redis.Redis] = []
        self.ids: list[str] = []

    def form_cluster(self) -> None:
        self.admins = [server.admin() for server in self.servers]
        self.ids = [admin.execute_command("CLUSTER", "MYID").decode() for admin in self.admins]
        edges = (0, 5461, 10923, 16384)
        for number, admin in enumerate(self.admins):
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
            bus_port = self.servers[number].arguments[3]
            self.admins[0].execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[number].port, bus_port)
        eventually(self.agree, "the nodes agree on the map")

    @property
    def url(self) -> str:
        return "valkey+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def agree(self) -> bool:
        states = [admin.execute_command("CLUSTER", "INFO") for admin in self.admins]
        maps = [admin.execute_command("CLUSTER", "SLOTS") for admin in self.admins]
        return all(b"cluster_state:ok" in state for state in states) and all(len(each) >= 3 for each in maps)

    def owner(self, slot: int) -> int:
        """The number of the node that holds the slot, asked of the nodes themselves."""
        for first, last, master, *_ in self.admins[0].execute_command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(n for n, server in enumerate(self.servers) if server.port == master[1])
        raise AssertionError(f"nobody owns slot {slot}")

    def begin_move(self, slot: int, source: int, target: int) -> None:
        self.admins[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        self.admins[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])

    def move_key(self, key: str, source: int, target: int) -> None:
        port = self.servers[target].port
        self.admins[source].execute_command("MIGRATE", "127.0.0.1", port, key, 0, 5000)

    def end_move(self, slot: int, source: int, target: int) -> None:
        for number in (target, source, *({0, 1, 2} - {source, target})):
            self.admins[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])

    def exists(self, key: str, node: int) -> bool:
        return int(self.admins[node].execute_command("CLUSTER", "COUNTKEYSINSLOT", key_slot(key))) > 0

    def close(self) -> None:
        for admin in self.admins:
            admin.close()
        for server in self.servers:
            server.resume()
            server.kill()


@pytest.fixture(scope="module")
def running_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("cluster"))
    try:
        nodes.form_cluster()
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def nodes(running_nodes: Nodes) -> Nodes:
    for admin in running_nodes.admins:
        admin.flushall()
    return running_nodes


async def open_cluster(nodes: Nodes) -> Cluster:
    store = await respline.open_store(nodes.url)
    assert isinstance(store, Cluster)
    await store.ready(PATIENCE_SECONDS)
    return store


async def test_keys_land_on_the_node_that_owns_their_slot(nodes: Nodes) -> None:
    async with await open_cluster(nodes) as cluster:
        keys = [f"seats_bf:{{{n}:A-1}}" for n in range(300)]
        for key in keys[:50]:
            assert nodes.admins[0].execute_command("CLUSTER", "KEYSLOT", key) == key_slot(key)
        await asyncio.gather(*(cluster.call("SET", key, key) for key in keys))
        assert await asyncio.gather(*(cluster.call("GET", key) for key in keys)) == [key.encode() for key in keys]
        sizes = [admin.dbsize() for admin in nodes.admins]
        assert sum(sizes) == 300
        assert all(sizes)
        assert {str(line.address) for line in cluster.nodes.values()} == {f"127.0.0.1:{s.port}" for s in nodes.servers}
        assert cluster.connected
        assert cluster.in_flight == 0
        assert cluster.counters.commands >= 600


async def test_call_many_writes_once_per_node_and_answers_in_order(nodes: Nodes) -> None:
    async with await open_cluster(nodes) as cluster:
        writes = {name: line.counters.writes for name, line in cluster.nodes.items()}
        keys = [f"k{n}" for n in range(200)]
        commands: list[respline.Command] = [("SET", key, key) for key in keys]
        replies = await cluster.call_many([*commands, ("INCR", "k0"), ("PING",), *(("GET", key) for key in keys)])
        assert replies[:200] == [b"OK"] * 200
        assert isinstance(replies[200], ServerError)
        assert replies[201] == b"PONG"
        assert replies[202:] == [key.encode() for key in keys]
        assert all(line.counters.writes == writes[name] + 1 for name, line in cluster.nodes.items())
        assert await cluster.call_many([]) == []


async def test_scripts_are_loaded_everywhere_and_run_by_their_key(nodes: Nodes) -> None:
    async with await open_cluster(nodes) as cluster:
        sha = await cluster.call("SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])")
        replies = await asyncio.gather(*(cluster.call("EVALSHA", sha, 1, f"n{n}") for n in range(30)))
        assert replies == [1] * 30
        assert [admin.script_exists(sha.decode()) for admin in nodes.admins] == [[True]] * 3
        with pytest.raises(ServerError, match="NOSCRIPT"):
            await cluster.call("EVALSHA", "0" * 40, 1, "n0")
        with pytest.raises(ServerError, match="ompil"):
            await cluster.call("SCRIPT", "LOAD", "this is not lua")


async def test_a_transaction_stays_in_one_slot(nodes: Nodes) -> None:
    async with await open_cluster(nodes) as cluster:
        assert await cluster.transaction([("SET", "{t}a", 1), ("INCR", "{t}a"), ("GET", "{t}a")]) == [b"OK", 2, b"2"]
        with pytest.raises(NotSent, match="one slot"):
            await cluster.transaction([("SET", "a", 1), ("SET", "b", 1)])
        with pytest.raises(NotSent, match="single node"):
            await cluster.call("FLUSHALL")
        elsewhere = next(key for key in "bcdefghijk" if nodes.owner(key_slot(key)) != nodes.owner(key_slot("a")))
        with pytest.raises(NotSent, match="WATCH"):
            await cluster.call_many([("SET", "a", 1), ("WATCH", elsewhere)])
        assert await cluster.call("EXISTS", "a") == 0
        assert await cluster.call("GET", "{t}a") == b"2"


async def test_a_moved_slot_is_followed_and_every_command_runs_once(nodes: Nodes) -> None:
    slot = key_slot("moving")
    source = nodes.owner(slot)
    target = (source + 1) % 3
    async with await open_cluster(nodes) as cluster:
        assert await cluster.call("INCR", "moving") == 1
        nodes.begin_move(slot, source, target)
        nodes.move_key("moving", source, target)
        nodes.end_move(slot, source, target)
        assert await asyncio.gather(*(cluster.call("INCR", "moving") for _ in range(20))) == list(range(2, 22))
        assert nodes.exists("moving", target)
        assert not nodes.exists("moving", source)
        # The map was read anew: no further detour.
        asked_before = cluster.nodes[f"127.0.0.1:{nodes.servers[source].port}"].counters.commands
        assert await cluster.call_many([("GET", "moving"), ("INCR", "moving")]) == [b"21", 22]
        assert await cluster.transaction([("INCR", "moving"), ("GET", "moving")]) == [23, b"23"]
        assert cluster.nodes[f"127.0.0.1:{nodes.servers[source].port}"].counters.commands <= asked_before + 1


async def test_one_redirection_is_enough_to_learn_the_whole_map(nodes: Nodes) -> None:
    first, second = key_slot("pioneer"), key_slot("settler")
    async with await open_cluster(nodes) as cluster:
        for slot in (first, second):
            source = nodes.owner(slot)
            nodes.begin_move(slot, source, (source + 1) % 3)
            nodes.end_move(slot, source, (source + 1) % 3)
        assert await cluster.call("INCR", "pioneer") == 1
        home = nodes.servers[nodes.owner(second)].port
        await until(lambda: cluster._topology.owner(second).address.port == home, "the new map was read")


async def test_lists_and_transactions_follow_a_moved_slot_too(nodes: Nodes) -> None:
    slot = key_slot("wandering")
    async with await open_cluster(nodes) as listing, await open_cluster(nodes) as transacting:
        source = nodes.owner(slot)
        target = (source + 1) % 3
        nodes.begin_move(slot, source, target)
        nodes.end_move(slot, source, target)
        commands: list[respline.Command] = [
            ("SET", "here", 0),
            ("INCR", "wandering"),
            ("INCR", "wandering"),
            ("GET", "here"),
        ]
        assert await listing.call_many(commands) == [b"OK", 1, 2, b"0"]
        assert await transacting.transaction([("INCR", "wandering"), ("INCR", "wandering")]) == [3, 4]
        assert nodes.exists("wandering", target)


async def test_a_slot_on_the_move_is_asked_for_at_its_new_home(nodes: Nodes) -> None:
    slot = key_slot("{q}new")
    source = nodes.owner(slot)
    target = (source + 1) % 3
    async with await open_cluster(nodes) as cluster:
        await cluster.call("SET", "{q}old", "still here")
        nodes.begin_move(slot, source, target)
        assert await cluster.call("INCR", "{q}new") == 1
        assert await cluster.call_many([("INCR", "{q}new"), ("GET", "{q}old")]) == [2, b"still here"]
        assert await cluster.transaction([("INCR", "{q}new"), ("INCR", "{q}new")]) == [3, 4]
        with pytest.raises(ServerError, match="TRYAGAIN"):
            await cluster.call("MGET", "{q}new", "{q}old")
        assert nodes.exists("{q}new", target)
        nodes.move_key("{q}old", source, target)
        nodes.end_move(slot, source, target)
        assert await cluster.call("MGET", "{q}new", "{q}old") == [b"4", b"still here"]


async def test_a_lost_node_is_told_apart_and_comes_back(nodes: Nodes) -> None:
    async with await open_cluster(nodes) as cluster:
        lost = nodes.owner(key_slot("a"))
        there = next(key for key in "bcdefghijk" if nodes.owner(key_slot(key)) != lost)
        nodes.servers[lost].pause()
        hanging = cluster.call("INCR", "a")
        mixed = asyncio.ensure_future(cluster.call_many([("INCR", "a"), ("INCR", there)]))
        await asyncio.sleep(0)
        assert await cluster.call("INCR", there) == 2
        nodes.servers[lost].kill()
        with pytest.raises(OutcomeUnknown):
            await hanging
        with pytest.raises(OutcomeUnknown, match="part of the list"):
            await mixed
        with pytest.raises(NotSent):
            await cluster.call("INCR", "a")
        with pytest.raises(NotSent):
            await cluster.call_many([("INCR", "a")])
        assert not cluster.connected
        assert await cluster.call("INCR", there) == 3
        nodes.servers[lost].start()
        await until(lambda: cluster.connected, "the node came back")
        eventually(nodes.agree, "the nodes agree again")
        assert await cluster.call("INCR", "a") == 1


async def test_a_server_outside_any_cluster_is_refused_clearly(server: Server) -> None:
    with pytest.raises(NotSent, match="cluster support disabled"):
        await respline.open_cluster([server.url])


async def test_dead_seeds_are_skipped_and_only_dead_ones_are_an_error(nodes: Nodes) -> None:
    dead = f"redis://127.0.0.1:{free_port()}"
    async with await respline.open_cluster([dead, nodes.servers[1].url]) as cluster:
        await cluster.ready(PATIENCE_SECONDS)
        assert await cluster.call("SET", "k", 1) == b"OK"
        assert cluster.connected
    with pytest.raises(NotSent, match="no node told the map"):
        await respline.open_cluster([dead])


async def test_nodes_that_send_each_other_the_caller_are_left_after_a_few_hops() -> None:
    """Two nodes with contradictory maps would otherwise keep a command going for ever."""
    asked: list[bytes] = []

    port: int

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"INFO":
            return b"$0\r\n\r\n"
        if command[0] == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n" % port
        asked.append(command[0])
        return b"-MOVED 1 :%d\r\n" % port

    async with (
        listening(answering(answer)) as port,
        await respline.open_cluster([f"redis://127.0.0.1:{port}"]) as cluster,
    ):
        with pytest.raises(ServerError, match="MOVED"):
            await cluster.call("GET", "k")
        assert asked == [b"GET"] * (1 + HOPS_MAX)
        replies = await cluster.call_many([("GET", "k")])
        assert isinstance(replies[0], ServerError)


async def test_a_closed_cluster_sends_nothing(nodes: Nodes) -> None:
    cluster = await open_cluster(nodes)
    calls = [cluster.call("INCR", f"k{n}") for n in range(30)]
    await cluster.aclose()
    assert await asyncio.gather(*calls) == [1] * 30
    with pytest.raises(NotSent):
        await cluster.call("INCR", "k0")
    with pytest.raises(NotSent):
        await cluster.call_many([("INCR", "k0")])
    assert sum(admin.dbsize() for admin in nodes.admins) == 30
