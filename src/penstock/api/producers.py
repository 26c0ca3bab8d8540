"""InitProducerId: the number an idempotent producer signs its batches with. Those with a name: `api/transactions`."""

from kio.schema.errors import ErrorCode

import respline
from penstock.api import transactions
from penstock.broker import Broker
from penstock.request import Answer, Request


async def init_producer_id(broker: Broker, request: Request) -> Answer:
    if request.body["transactional_id"] is not None:
        return await transactions.init_producer_id(broker, request)
    try:
        producer_id = await broker.producer_ids.next()
    except respline.ResplineError:
        broker.metrics.store_failures += 1
        # Every client retries this one; a storage error is fatal here to some.
        return _refused(ErrorCode.coordinator_not_available)
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}


def _refused(code: ErrorCode) -> Answer:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
