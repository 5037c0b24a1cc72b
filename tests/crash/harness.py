"""Repeats three steps: kills the indexer under load, starts it again, verifies the store.

A run uses one store. The retriever continues to run while the indexer is killed, because its view
of the store must be right after every crash of the indexer. Some kills also end the retriever. A
seed determines all kills before the run begins, so that a run can be repeated.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Event

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.types import DEFAULT_COLLECTION
from tests.crash.documents import SMALL, VARIABLES
from tests.crash.ledger import Collection, Entry
from tests.crash.load import (
    CollectionWriter,
    Done,
    Searcher,
    StreamWriter,
    UnaryWriter,
    Worker,
    work_until_gone,
)
from tests.crash.verify import ExactSearch, check_beside_services, settle
from tests.support.servers.processes import Process
from tests.support.servers.stores import check_store
from tests.support.until import PATIENCE_S, until

LARGE = "large"
TENANTS = (LARGE, SMALL)
_IDS = {LARGE: 160, SMALL: 10}
MIN_RECALL = 0.99
"""The minimum mean recall of all searches of a run."""
MIN_RECALL_OF_FEW = 0.95
"""The minimum mean recall of a few searches; each is for a hundred leaves."""
RANDOM = "random moment"
STARTING = "while starting"

_ROOT = Path(__file__).parents[2]
# Under load, an indexer reaches each crash point within this time; most points, within a second.
_POINT_LIMIT_S = 60.0
# Within this time after the end of a service, its clients have noticed that it has ended.
_ENDING_S = PATIENCE_S

# A launcher installs crash points and then runs the indexer.
_AT_POINT = replace(INDEXER, module="tests.crash.indexer_at_point")


@dataclass(frozen=True)
class Kill:
    """A planned kill of the indexer.

    The indexer kills itself when it reaches `point` for the `at`-th time. If that has not happened
    after `delay_s`, or if `point` is empty, it is killed then. `starting` is True if the kill is
    during the start of the indexer, and False if it is under load.
    """

    delay_s: float
    point: str = ""
    at: int = 1
    starting: bool = False
    retriever: bool = False
    """True if the retriever is killed too, after half of `delay_s`."""


class FragileIndexer(Process):
    """An indexer that kills itself at the crash point of `kill`, but not before `arm` is called."""

    def __init__(self, data_dir: Path, kill: Kill) -> None:
        self._armed = data_dir.with_name("armed")
        self._armed.unlink(missing_ok=True)
        if kill.starting:
            self.arm()
        crash = {
            "CRASH_POINT": kill.point,
            "CRASH_AT": str(kill.at),
            "CRASH_ARMED": str(self._armed),
            "PYTHONPATH": str(_ROOT),
        }
        super().__init__(_AT_POINT, data_dir, {**VARIABLES, **crash})

    def arm(self) -> None:
        """Makes the indexer count from now on how often it reaches its crash point."""
        self._armed.touch()

    def killed_itself(self, timeout_s: float) -> bool:
        """Returns True if the indexer kills itself within `timeout_s`.

        Fails if the indexer ends in another way.
        """
        try:
            code = self.wait(timeout_s)
        except TimeoutExpired:
            return False
        assert code == -signal.SIGKILL, self.log
        return True


@dataclass
class Tally:
    """The counts and recalls that a run reports."""

    kills: Counter[str] = field(default_factory=Counter)
    retriever_kills: int = 0
    done: Done = field(default_factory=Done)
    verified: int = 0
    recalls: list[float] = field(default_factory=list)
    losses: int = 0

    def lines(self) -> Iterator[str]:
        points = sorted(self.kills.items())
        yield f"kills of the indexer: {self.kills.total()}"
        yield from (f"  {name}: {kill_count}" for name, kill_count in points)
        yield f"kills of the retriever: {self.retriever_kills}"
        yield f"acknowledged writes: {self.done.acknowledged}"
        yield f"searches under load: {self.done.searches}"
        yield f"documents verified: {self.verified}"
        yield f"mean recall of searches served by segments: {self.recall:.5f}"
        yield f"losses: {self.losses}"

    @property
    def recall(self) -> float:
        recalls = [*self.recalls, *self.done.recalls]
        return sum(recalls) / len(recalls) if recalls else 1.0


class CrashRun:
    """Kills the services of one store again and again, and verifies the store after each kill."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.tally = Tally()
        self._data_dir = data_dir
        self._random = random.Random(seed)
        self._names = count()
        self._collections = {tenant_id: _default_collection(tenant_id) for tenant_id in TENANTS}
        self._retriever = Process(RETRIEVER, data_dir, VARIABLES)

    def run(self, kills: Iterable[Kill]) -> None:
        """Performs the kills, then stops the services with SIGTERM and checks the store."""
        self._create_collections()
        for kill in kills:
            with self._indexer(kill) as indexer:
                if kill.starting:
                    self._end(indexer, kill)
                else:
                    indexer.wait_until_serving()
                    self._verify(indexer)
                    self._under_load(indexer, kill)
        with self._indexer(Kill(0)) as indexer:
            indexer.wait_until_serving()
            self._verify(indexer)
            assert indexer.stop() == 0, indexer.log
        assert self._retriever.stop() == 0, self._retriever.log
        check_store(self._data_dir)

    def _create_collections(self) -> None:
        with self._indexer(Kill(0)) as indexer:
            indexer.wait_until_serving()
            with Client(indexer.address) as client:
                for tenant_id in TENANTS:
                    existence = self._collections[tenant_id][DEFAULT_COLLECTION].existence
                    write = existence.send(stores=True)
                    client.create_collection(tenant_id, DEFAULT_COLLECTION)
                    existence.acknowledge(write)

    def close(self) -> None:
        self._retriever.kill()

    @contextmanager
    def _indexer(self, kill: Kill) -> Iterator[FragileIndexer]:
        indexer = FragileIndexer(self._data_dir, kill)
        try:
            yield indexer
            assert "internal_error" not in indexer.log, indexer.log
        finally:
            indexer.kill()

    def _end(self, indexer: FragileIndexer, kill: Kill) -> None:
        """Waits up to `delay_s`, then kills the indexer if it has not killed itself."""
        has_killed_itself = indexer.killed_itself(kill.delay_s)
        indexer.kill()
        moment = STARTING if kill.starting else RANDOM
        self.tally.kills[kill.point if has_killed_itself else moment] += 1

    def _under_load(self, indexer: FragileIndexer, kill: Kill) -> None:
        stop = Event()
        with (
            Client(indexer.address, self._retriever.address) as writing,
            Client(indexer.address, self._retriever.address) as searching,
            ThreadPoolExecutor(8) as threads,
        ):
            workers = [*self._writers(writing), *self._searchers(searching)]
            tasks = [threads.submit(work_until_gone, worker, stop) for worker in workers]
            try:
                if kill.retriever:
                    self._kill_retriever(tasks, kill.delay_s / 2)
                indexer.arm()
                self._end(indexer, kill)
            finally:
                stop.set()
                writing.close()
            self._collect(tasks)
        if kill.retriever:
            self._retriever = Process(RETRIEVER, self._data_dir, VARIABLES)

    def _kill_retriever(self, tasks: list[Future[Done]], after_s: float) -> None:
        """Kills the retriever after `after_s` under load, or as soon as a client has ended."""
        wait(tasks, after_s, FIRST_COMPLETED)
        self._retriever.kill()
        self.tally.retriever_kills += 1

    def _writers(self, client: Client) -> list[Worker]:
        large, small = (self._collections[tenant][DEFAULT_COLLECTION] for tenant in TENANTS)
        ids = sorted(large.documents)
        return [
            UnaryWriter(client, large, ids[0::3], self._source()),
            UnaryWriter(client, large, ids[1::3], self._source()),
            StreamWriter(client, large, ids[2::3], self._source()),
            UnaryWriter(client, small, sorted(small.documents), self._source()),
            CollectionWriter(client, LARGE, self._collections[LARGE], self._names),
        ]

    def _searchers(self, client: Client) -> list[Worker]:
        searched = [self._collections[tenant][DEFAULT_COLLECTION] for tenant in TENANTS]
        return [Searcher(client, searched, self._source()) for _ in range(2)]

    def _source(self) -> random.Random:
        return random.Random(self._random.random())

    def _collect(self, tasks: list[Future[Done]]) -> None:
        end_s = time.monotonic() + _ENDING_S
        for task in tasks:
            self.tally.done.add(task.result(end_s - time.monotonic()))

    def _verify(self, indexer: Process) -> None:
        self._retriever.wait_until_serving()
        with Client(indexer.address, self._retriever.address) as client:
            problems = [
                problem
                for tenant_id in TENANTS
                for problem in settle(client, tenant_id, self._collections[tenant_id])
            ]
            self.tally.losses += len(problems)
            assert problems == [], problems
            for tenant_id in TENANTS:
                self._verify_search(client, tenant_id)
        check_beside_services(self._data_dir)

    def _verify_search(self, client: Client, tenant_id: str) -> None:
        collections = self._collections[tenant_id]
        self.tally.verified += sum(
            len(collection.versions()) for collection in collections.values()
        )
        versions = collections[DEFAULT_COLLECTION].versions()
        segments = client.index_status(tenant_id).embedded.segments
        exact = ExactSearch(tenant_id, versions)
        recalls = exact.compare(client, self._random)
        if segments:
            self.tally.recalls += recalls
        else:
            assert recalls == [1.0] * len(recalls)
        exact.compare_by_words(client, self._random, collections[DEFAULT_COLLECTION].documents)
        until(lambda: not client.index_status(tenant_id).unsummarised_documents)
        assert exact.compare_by_summaries(client, self._random) == 1.0


def planned(
    source: random.Random, points: Iterable[str], kills_per_point: int, random_kills: int
) -> list[Kill]:
    """Returns kills in random order.

    `kills_per_point` kills are at each crash point, and `random_kills` are at random moments. Of
    these, one in ten is while the indexer starts, and one in ten also kills the retriever.
    """
    kills = [
        Kill(_POINT_LIMIT_S, point, source.randint(1, 3))
        for point in points
        for _ in range(kills_per_point)
    ]
    for index in range(random_kills):
        starting, retriever = index % 10 == 0, index % 10 == 5
        kills.append(Kill(_moment_s(source), starting=starting, retriever=retriever))
    source.shuffle(kills)
    return kills


def _moment_s(source: random.Random) -> float:
    """Returns a random time from 0.05 to 1.5 s, whose logarithm is uniformly distributed."""
    return float(0.05 * 30 ** source.random())


def _default_collection(tenant_id: str) -> dict[str, Collection]:
    ids = [f"d{number:03}" for number in range(_IDS[tenant_id])]
    collection = Collection(tenant_id, DEFAULT_COLLECTION)
    collection.documents = {document_id: Entry() for document_id in ids}
    return {DEFAULT_COLLECTION: collection}
