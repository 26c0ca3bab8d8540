"""One sale on simulated hosts, for `aisle bench capacity`: the steps of a booking, batched as the product batches them.

Buyers order again as soon as they are answered. Orders share commits, one at a time an API process; workers share the
partitions, gather before they take, and take so many at most. Orders travel as counts: nobody in here has a name.
"""

import random
from collections.abc import Callable
from functools import partial

from aisle.bench import unit_costs as shares
from aisle.bench.simulated_hosts import Clock, Host, Process, Then
from aisle.bench.topology import Topology
from aisle.bench.unit_costs import UnitCosts
from aisle.limits import LOG_BATCH_MESSAGES_MAX, PLACE_BATCH_MAX
from aisle.log import GATHER_SECONDS

# Waiting that is no work: the disk of the database, the wire between two hosts.
COMMIT_SECONDS = 0.002
WIRE_SECONDS = 0.0001
ORDERS_AT_ONCE = 16


class Api:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.waiting = 0
        self.committing = False


class Worker:
    """One process of a service; `handle` is told how many messages it takes and calls back when they are done."""

    def __init__(self, process: Process, handle: Callable[["Worker", int, Then], None]) -> None:
        self.process = process
        self.handle = handle
        self.inbox = 0
        self.busy = False


class Sale:
    def __init__(self, topology: Topology, costs: UnitCosts, seed: int) -> None:
        self.topology, self.costs = topology, costs
        self.clock = Clock()
        self.choose = random.Random(seed)  # noqa: S311 - the same sale every time
        self.hosts: list[Host] = []
        self.processes: list[Process] = []
        self.unordered, self.settled, self.ended_at = topology.bookings, 0, 0.0
        self._place_everything()

    def run(self) -> float:
        """Seconds from the first order until the last booking waits for its payment."""
        for n in range(min(self.topology.buyers, self.topology.bookings)):
            self.unordered -= 1
            self._order(self.apis[n % len(self.apis)], 1)
        self.clock.run()
        assert self.settled == self.topology.bookings, "every order has an end"
        return self.ended_at

    # Who runs where

    def _place_everything(self) -> None:
        topology = self.topology
        if topology.embedded:
            host = self._host("host", topology.cores)
            self.buyers = self._process(host, "buyers")
            self.apis = [Api(self._process(host, "api"))]
            workers = self._process(host, "workers")
            self.services = {
                "reservation": [Worker(workers, self._reserve)],
                "ticketing": [Worker(workers, self._write_tickets)],
                "booking": [Worker(workers, self._write_outcome)],
            }
            self.brokers, self.stores = [self._process(host, "log")], [self._process(host, "store")]
            self.database = [self._process(host, "database") for _ in range(topology.cores)]
            self.log_us, self.store_us = self.costs.log, self.costs.store
            return
        self.buyers = self._process(self._host("the world", 1_000), "buyers")
        self.apis = [Api(process) for process in self._spread("api", topology.api)]
        handlers = {"reservation": self._reserve, "ticketing": self._write_tickets, "booking": self._write_outcome}
        self.services = {
            name: [Worker(process, handle) for process in self._spread(name, getattr(topology, name))]
            for name, handle in handlers.items()
        }
        # A broker of its own does what the store did for the embedded one, too.
        self.log_us, self.store_us = self.costs.log + self.costs.store - self.costs.claim, self.costs.claim
        self.brokers = [process for n in range(topology.brokers) for process in self._all_cores(f"log-{n + 1}", "log")]
        self.stores = [self._process(self._host(f"store-{n + 1}", 1), "store") for n in range(topology.stores)]
        self.database = self._all_cores("database", "database", topology.database_cores)

    def _host(self, name: str, cores: int) -> Host:
        self.hosts.append(Host(self.clock, name, cores, self.topology.gbit * 1e9 / 8))
        return self.hosts[-1]

    def _process(self, host: Host, name: str) -> Process:
        self.processes.append(Process(host, name))
        return self.processes[-1]

    def _spread(self, name: str, count: int) -> list[Process]:
        """Processes of one role, a core each."""
        cores = self.topology.cores
        hosts = [self._host(f"{name}-{n + 1}", cores) for n in range(-(-count // cores))]
        return [self._process(hosts[n // cores], name) for n in range(count)]

    def _all_cores(self, host: str, name: str, cores: int = 0) -> list[Process]:
        """A server that uses every core of its host."""
        place = self._host(host, cores or self.topology.cores)
        return [self._process(place, name) for _ in range(place.cores)]

    # The way of an order

    def _order(self, api: Api, orders: int) -> None:
        seconds = orders * self.costs.buyers if self.topology.embedded else 0
        send = partial(self._send, self.buyers, api.process, orders * self.costs.order_bytes)
        parse = partial(self._parse, api, orders)
        self.buyers.do(seconds, partial(send, parse))

    def _parse(self, api: Api, orders: int) -> None:
        api.process.do(orders * self.costs.api * shares.BEFORE_THE_COMMIT, partial(self._join, api, orders))

    def _join(self, api: Api, orders: int) -> None:
        api.waiting += orders
        self._commit(api)

    def _commit(self, api: Api) -> None:
        if api.committing or not api.waiting:
            return
        orders = min(api.waiting, PLACE_BATCH_MAX)
        api.waiting -= orders
        api.committing = True
        self._ask_database(api.process, orders, shares.PLACING, partial(self._committed, api, orders))

    def _committed(self, api: Api, orders: int) -> None:
        api.committing = False
        while orders:
            few = min(orders, ORDERS_AT_ONCE)
            orders -= few
            after = few * self.costs.api * (1 - shares.BEFORE_THE_COMMIT)
            api.process.do(after, partial(self._answered, api, few))
        self._commit(api)

    def _answered(self, api: Api, orders: int) -> None:
        again = min(orders, self.unordered)
        self.unordered -= again
        if again:
            self._send(api.process, self.buyers, again * self.costs.order_bytes, partial(self._order, api, again))
        self._publish(api.process, "reservation", orders)

    # The services behind it

    def _publish(self, sender: Process, service: str, messages: int) -> None:
        """Through a broker to the workers of a service, by partition."""
        workers = self.services[service]
        counts = dict.fromkeys(range(len(workers)), 0)
        for _ in range(messages):
            counts[self.choose.randrange(self.topology.partitions) % len(workers)] += 1
        for n, count in counts.items():
            if count:
                broker = _least_asked(self.brokers)
                keep = partial(self._keep, broker, workers[n], count)
                self._send(sender, broker, count * self.costs.message_bytes, keep)

    def _keep(self, broker: Process, worker: Worker, messages: int) -> None:
        deliver = partial(self._receive, worker, messages)
        size = messages * self.costs.message_bytes
        seconds = messages * self.log_us / shares.MESSAGES_A_BOOKING
        broker.do(seconds, partial(self._send, broker, worker.process, size, deliver))

    def _receive(self, worker: Worker, messages: int) -> None:
        worker.inbox += messages
        if not worker.busy:
            worker.busy = True
            self.clock.after(GATHER_SECONDS, partial(self._take, worker))

    def _take(self, worker: Worker) -> None:
        messages = min(worker.inbox, LOG_BATCH_MESSAGES_MAX)
        worker.inbox -= messages
        worker.busy = bool(messages)
        if messages:
            again = partial(self.clock.after, GATHER_SECONDS, partial(self._take, worker))
            worker.handle(worker, messages, again)

    def _reserve(self, worker: Worker, bookings: int, again: Then) -> None:
        store = self.choose.choice(self.stores)

        def taken() -> None:
            self._publish(worker.process, "ticketing", bookings)
            self._publish(worker.process, "booking", bookings)
            again()

        claim = partial(store.do, bookings * self.store_us, partial(self._send, store, worker.process, 0, taken))
        send = partial(self._send, worker.process, store, bookings * self.costs.message_bytes, claim)
        worker.process.do(bookings * self.costs.workers * shares.RESERVATION, send)

    def _write_tickets(self, worker: Worker, bookings: int, again: Then) -> None:
        write = partial(self._ask_database, worker.process, bookings, shares.TICKETS, again)
        worker.process.do(bookings * self.costs.workers * shares.TICKETING, write)

    def _write_outcome(self, worker: Worker, bookings: int, again: Then) -> None:
        def written() -> None:
            self.settled += bookings
            self.ended_at = self.clock.now
            again()

        write = partial(self._ask_database, worker.process, bookings, shares.OUTCOME, written)
        worker.process.do(bookings * self.costs.workers * shares.BOOKING, write)

    # Between them

    def _ask_database(self, asker: Process, rows: int, share: float, then: Then) -> None:
        """One statement for the batch, in one of the database's processes, and the disk behind it."""
        backend = _least_asked(self.database)
        answer = partial(self.clock.after, COMMIT_SECONDS, partial(self._send, backend, asker, 0, then))
        work = partial(backend.do, rows * self.costs.database * share, answer)
        self._send(asker, backend, rows * self.costs.message_bytes, work)

    def _send(self, sender: Process, receiver: Process, size: float, then: Then) -> None:
        sender.host.send(receiver.host, size, WIRE_SECONDS, then)


def _least_asked(processes: list[Process]) -> Process:
    return min(processes, key=lambda process: process.waiting_seconds)
