"""Extends hypercorn's HTTP/2 with limits, and with handling for errors that would otherwise end the connection.

A connection is usually that of a proxy, with the requests of many clients; one client must not end those of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, PingReceived, PriorityUpdated, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, StreamClosed
from hypercorn.protocol.events import Event as RequestEvent
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hyperframe.frame import GoAwayFrame

from tollgate.engines import CLOSE_GRACE_SECONDS, MOST_DROPPED, SLOWEST_BYTES, STUCK_SECONDS
from tollgate.engines.http2_body import ApplicationTasks, UnreadBody
from tollgate.engines.request_head import IN_HOSTS

log = logging.getLogger("tollgate.engines")

_MOST_RESETS = 500
_RESETS_A_SECOND = 50
"""Limits on requests that a client cancels: several times the hundred that may run at once. A request costs the client
40 bytes and the gateway a task, and cancelled ones do not count among the hundred (CVE-2023-44487)."""


_GOAWAY = GoAwayFrame(stream_id=0, last_stream_id=2**31 - 1).serialize()
"""Asks the client to start no more requests; those already sent are still answered (RFC 9113, 6.8). Not sent through
h2, which would end the connection with this frame."""
_IN_METHODS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"
"""The characters of a token (RFC 9110, 5.6.2)."""
_WINDOW = 65_535
"""The initial flow-control window of a stream (RFC 9113, 6.9.2)."""
_PIECE = 8 * 1024
"""Bytes that are processed before other tasks get a turn: up to 500 of the smallest frames, which take 10 ms."""


class UnsentAnswer(StreamBuffer):
    """The unsent part of an answer, and the number of bytes that the client has accepted."""

    accepted = 0
    stuck_since: float | None = None
    """When the client last accepted a significant amount; None if there is nothing to send."""
    _accepted_before = 0

    async def pop(self, max_length: int) -> bytes:
        """See hypercorn's."""
        data = await super().pop(max_length)
        self.accepted += len(data)
        return data

    def is_stuck(self, now: float) -> bool:
        """Whether the client accepted fewer than `SLOWEST_BYTES` within `STUCK_SECONDS`. To be called periodically."""
        if not self.buffer:
            self.stuck_since = None
        elif self.stuck_since is None or self.accepted - self._accepted_before >= SLOWEST_BYTES:
            self.stuck_since, self._accepted_before = now, self.accepted
        return self.stuck_since is not None and now - self.stuck_since >= STUCK_SECONDS


class Http2(H2Protocol):
    """Replaces hypercorn's `H2Protocol`."""

    _resets = 0.0
    """Recently cancelled requests; decreases by `_RESETS_A_SECOND` each second."""
    _reset_at = 0.0
    _goaway_at: float | None = None
    """When a GOAWAY was sent because the server stops."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._body_bytes: dict[int, int] = {}
        """Body bytes received, by stream, of requests whose body is incomplete."""
        self._dropped: dict[int, int] = {}
        """Body bytes received and discarded, by stream, of requests that were answered before their end."""
        self._last_check: dict[int, int] = {}
        """`_body_bytes` at the last call of `end_stuck`, of bodies of which all that had arrived was read."""
        _keep_answering_after_goaway(self.connection)
        self.task_group = ApplicationTasks(self.task_group, self._acknowledge)  # type: ignore[assignment]

    async def initiate(self, *args: Any, **options: Any) -> None:
        """See hypercorn's."""
        await super().initiate(*args, **options)
        # unread bodies must not exhaust the connection's window: make it as large as those of all streams
        self.connection.increment_flow_control_window(self.config.h2_max_concurrent_streams * _WINDOW)
        await self._flush()

    async def announce_stop(self) -> None:
        """Send a GOAWAY that asks the client to start no more requests."""
        if self._goaway_at is None:
            self._goaway_at = time.monotonic()
            await self.send(RawData(_GOAWAY))

    async def send_final_goaway(self) -> None:
        """Send a GOAWAY with the last request that was answered; the connection can be closed afterwards."""
        with contextlib.suppress(ProtocolError):  # closed meanwhile
            self.connection.close_connection()
        await self._flush()

    async def stream_send(self, event: RequestEvent) -> None:
        """See hypercorn's, which closes an idle connection at once, so that requests in transit would be lost."""
        if type(event) is StreamClosed and self.context.terminated.is_set():
            await self._close_stream(event.stream_id)
            await self.send(Updated(idle=self.idle))
        else:
            await super().stream_send(event)

    async def end_stuck(self) -> None:
        """End the streams whose body arrives too slowly, or whose client does not read the answer."""
        now = time.monotonic()
        stuck = {
            number
            for number, unsent in self.stream_buffers.items()
            if isinstance(unsent, UnsentAnswer) and unsent.is_stuck(now)
        }
        # a client whose body the application has not read yet gets a whole period afterwards
        received = {number: size for number, size in self._body_bytes.items() if self._has_read(number)}
        for number, size in received.items():
            if size - self._last_check.get(number, -SLOWEST_BYTES) < SLOWEST_BYTES:
                stuck.add(number)
        self._last_check = received
        for number in stuck:
            with contextlib.suppress(ProtocolError):  # closed meanwhile
                self.connection.reset_stream(number, ErrorCodes.CANCEL)
            await self._close_stream(number)
            await self._window_updated(number)
        if stuck:
            await self._flush()
            await self.send(Updated(idle=self.idle))

    async def handle(self, event: ConnectionEvent) -> None:
        """See hypercorn's protocols."""
        if not isinstance(event, RawData) or len(event.data) <= _PIECE:
            await self._handle_safely(event)
            return
        for at in range(0, len(event.data), _PIECE):
            if self.closed:
                return
            await self._handle_safely(RawData(event.data[at : at + _PIECE]))
            await asyncio.sleep(0)

    async def _handle_safely(self, event: ConnectionEvent) -> None:
        try:
            await super().handle(event)
        except Exception:
            # in hypercorn it would cancel the writer before the tasks that wait for it, so that neither the connection
            # nor a stopping server would ever end
            log.exception("an HTTP/2 connection is closed because of an internal error")
            await self._end(ErrorCodes.INTERNAL_ERROR)

    async def _end(self, why: ErrorCodes) -> None:
        """End the connection and all its requests."""
        with contextlib.suppress(ProtocolError):  # already closed
            self.connection.close_connection(why)
        await self._flush()
        await super().handle(Closed())
        await self.send(Closed())

    async def _handle_events(self, events: list[Event]) -> None:
        resets = sum(type(event) is StreamReset for event in events)
        if resets and self._too_many(resets):
            await self._end(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        for event in events:
            if type(event) in (PingReceived, PriorityUpdated):
                # h2 answers a ping; priorities are deprecated (RFC 9113, 5.3.2), and hypercorn would keep their streams
                # for ever
                continue
            if type(event) is DataReceived:
                await self._handle_data(event)
            elif type(event) is RequestReceived and not _is_readable(event):
                self._refuse(event)
            elif type(event) is RequestReceived and self.context.terminated.is_set():
                await self._handle_late_request(event)
            else:
                self._count_body(event)
                await super()._handle_events([event])
                if type(event) is StreamReset:
                    await self.send(Updated(idle=self.idle))  # hypercorn sends this for answered ones only
        await self._flush()

    async def _handle_data(self, event: DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None:
            self._discard(event)
            return
        self._count_body(event)
        _unread(stream).unacknowledged += event.flow_controlled_length
        await stream.handle(Body(stream_id=event.stream_id, data=event.data))

    async def _acknowledge(self, number: int, size: int) -> None:
        """The application of a stream has read `size` bytes of its body: open the client's window again."""
        if self.closed:
            return
        with contextlib.suppress(ProtocolError):  # closed meanwhile
            self.connection.acknowledge_received_data(size, number)
        await self._flush()

    def _has_read(self, number: int) -> bool:
        """Whether the application has read all body bytes that arrived."""
        stream = self.streams.get(number)
        return stream is None or _unread(stream).empty

    async def _handle_late_request(self, event: RequestReceived) -> None:
        """A request that arrived while the server stops. It is answered if it may have been sent before the GOAWAY
        arrived, else refused, so that the client can send it elsewhere."""
        if self._goaway_at is not None and time.monotonic() - self._goaway_at > CLOSE_GRACE_SECONDS:
            self._refuse(event)
            return
        self._count_body(event)
        await self._create_stream(event)
        await self.send(Updated(idle=False))

    def _refuse(self, event: RequestReceived) -> None:
        assert event.stream_id is not None
        with contextlib.suppress(ProtocolError):  # already cancelled by the client
            self.connection.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)

    def _count_body(self, event: Event) -> None:
        """Update the counts of body bytes per stream."""
        if type(event) is DataReceived:
            assert event.stream_id is not None and event.data is not None
            self._body_bytes[event.stream_id] = self._body_bytes.get(event.stream_id, 0) + len(event.data)
        elif type(event) is RequestReceived and event.stream_ended is None:
            assert event.stream_id is not None
            self._body_bytes[event.stream_id] = 0
        elif type(event) is StreamEnded or type(event) is StreamReset:
            assert event.stream_id is not None
            self._body_bytes.pop(event.stream_id, None)
            self._dropped.pop(event.stream_id, None)

    def _too_many(self, resets: int) -> bool:
        now = time.monotonic()
        self._resets = max(0.0, self._resets - (now - self._reset_at) * _RESETS_A_SECOND) + resets
        self._reset_at = now
        return self._resets > _MOST_RESETS

    def _discard(self, event: DataReceived) -> None:
        """Discard body bytes of a request that is already answered. hypercorn has forgotten the stream, and would end
        the connection. Resetting the stream would be right (RFC 9113, 8.1), but curl and Node would lose the answer."""
        number = event.stream_id
        assert number is not None
        self.connection.acknowledge_received_data(event.flow_controlled_length, number)
        self._dropped[number] = self._dropped.get(number, 0) + event.flow_controlled_length
        if self._dropped[number] > MOST_DROPPED:
            with contextlib.suppress(ProtocolError):  # closed meanwhile
                self.connection.reset_stream(number, ErrorCodes.NO_ERROR)

    async def _close_stream(self, stream_id: int) -> None:
        stream = self.streams.pop(stream_id, None)
        self._body_bytes.pop(stream_id, None)
        unsent = self.stream_buffers.get(stream_id)
        if unsent is not None:
            await unsent.close()  # wakes a task that waits for room in it
        if stream is not None:
            await stream.handle(StreamClosed(stream_id=stream_id))
            await _unread(stream).acknowledge()  # the other streams share the connection's window
            await self.has_data.set()


def _unread(stream: Any) -> UnreadBody:
    unread: UnreadBody = stream.app_put.__self__
    return unread


def _keep_answering_after_goaway(connection: H2Connection) -> None:
    """Still answer running requests after a client's GOAWAY (RFC 9113, 6.8), as Node's `session.close()` expects. h2
    would end the connection with that frame and read nothing after it."""
    handlers = connection._frame_dispatch_table
    end_connection = handlers[GoAwayFrame]

    def handle_goaway(frame: GoAwayFrame) -> Any:
        if frame.error_code == ErrorCodes.NO_ERROR and connection.open_inbound_streams:
            return [], []  # the client closes the connection after the answers, or the idle timeout does
        return end_connection(frame)

    handlers[GoAwayFrame] = handle_goaway


def _is_readable(event: RequestReceived) -> bool:
    """Whether the request can be processed: its method is a token and not CONNECT (which hypercorn recognises in any
    case), its path is ASCII and its host valid (RFC 3986)."""
    headers = dict(event.headers or ())
    host = headers.get(b":authority", b"")
    method = headers.get(b":method", b"")
    return (
        bool(method)
        and not method.translate(None, _IN_METHODS)
        and method.upper() != b"CONNECT"
        and headers.get(b":path", b"\xff").isascii()
        and not host.translate(None, IN_HOSTS)
    )
