"""What a gateway tells its operator's probes: readiness, and metrics."""

from __future__ import annotations

import orjson

from tollgate.images.service import jobs_of
from tollgate.process import descriptors
from tollgate.services import Reply, Services


def ready_reply(services: Services) -> Reply:
    """Whether new requests are taken; if not, why."""
    if services.draining:
        return Reply(503, [], b'{"status":"draining"}')
    if not services.ledger.ready:
        why = {"status": "not ready", "reason": services.ledger.not_ready_reason}
        return Reply(503, [], orjson.dumps(why))
    return Reply(200, [], b'{"status":"ready"}')


def metrics_reply(services: Services) -> Reply:
    """The counters and the state of the gateway, as text for Prometheus."""
    gauges: dict[str, tuple[str, float]] = {
        "tollgate_ready": (
            "1 if /readyz returns 200: the journal is writable and the gateway is not shutting down.",
            services.ledger.ready and not services.draining,
        ),
        "tollgate_config_current": (
            "1 if the newest configuration files are in use; 0 if they have errors and older ones stay in use.",
            not services.runtime.stale,
        ),
        "tollgate_usage_published": (
            "1 if the usage files are up to date; 0 if they cannot be written (the log has the reason).",
            services.ledger.published,
        ),
        "tollgate_alarms": (
            "Alarms for the operator: a provider rejects our key, our balance there is empty, or a proxy refuses us.",
            len(services.health.alarms()),
        ),
        "tollgate_routes_cooling": (
            "Routes that are cooling down after failures, and are tried last.",
            len(services.health.cooling()),
        ),
        "tollgate_request_body_bytes": ("Bytes of request bodies held in memory.", services.room.held),
        "tollgate_request_body_bytes_max": (
            "Most bytes of request bodies held in memory at once; further ones wait (server.max_bodies_bytes).",
            services.room.most,
        ),
        "tollgate_requests_waiting": ("Requests whose body waits for memory before it is read.", services.room.waiting),
        "tollgate_image_jobs_running": (
            "Image jobs tracked by this gateway that have not ended.",
            len(jobs_of(services).tracked.pending),
        ),
    }
    if (counted := descriptors.in_use()) is not None:
        gauges["process_open_fds"] = ("Open file descriptors; a stream takes two.", counted[0])
        gauges["process_max_fds"] = ("Limit of open file descriptors.", counted[1])
    text = services.metrics.render(gauges)
    return Reply(200, [], text.encode(), media_type=b"text/plain; version=0.0.4; charset=utf-8")
