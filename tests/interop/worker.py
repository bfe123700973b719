"""A worker of Berth in another language, written from the documentation of `src/wire` alone.

It keeps its resources and leases in memory, dials the gateway again when a link is lost, and tells on stdout what it sees,
one JSON object a line. Every wait is bounded: of a dial and its snapshot's acknowledgement, and of the whole program
(`--seconds`).

Some switches make it break the protocol, to see that a gateway stands it: `--alpn`, `--no-certificate`, `--oversized`.
Then it dials once. `--lose` loses the first dispatch with its link.
"""

import argparse
import asyncio
import json
import random
import ssl
import struct
from typing import Any

import msgpack
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.tls import verify_certificate
from cryptography import x509

from holdings import Resource, Worker

FRAME_BYTES_MAX = 1024 * 1024
PROTOCOL = 2
EVENTS_PER_PAGE_MAX = 100
BEAT = 0.5
BEATS_PER_DIGEST = 10
IDLE_LIMIT = 5.0
# From the first packet of a dial to the acknowledgement of the first snapshot.
LINK_BOUND = 5.0
REDIAL_MIN, REDIAL_MAX = 0.1, 5.0


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"said": what, **facts}), flush=True)


def frame(value: Any) -> bytes:
    payload = msgpack.packb(value)
    assert len(payload) <= FRAME_BYTES_MAX
    return struct.pack(">I", len(payload)) + payload


class Broken(Exception):
    """The gateway does not keep to the protocol."""


class Frames:
    """Cuts a stream into values."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        self.rest += data
        values = []
        while len(self.rest) >= 4:
            (length,) = struct.unpack(">I", self.rest[:4])
            if length > FRAME_BYTES_MAX:
                raise Broken(f"a frame of {length} bytes")
            if len(self.rest) < 4 + length:
                break
            # Bytes behind the value are an error, which is what `unpackb` raises.
            values.append(msgpack.unpackb(bytes(self.rest[4 : 4 + length])))
            del self.rest[: 4 + length]
        return values


class Link(QuicConnectionProtocol):
    """One link: the streams, and what is said on them."""

    CONTROL, CALLS = 0, 1  # the first bidirectional stream of the client's and of the server's, as QUIC counts

    def __init__(self, quic: QuicConnection, worker: Worker, options: argparse.Namespace) -> None:
        super().__init__(quic)
        self.worker, self.options = worker, options
        self.frames = {self.CONTROL: Frames(), self.CALLS: Frames()}
        self.up = False
        self.events_sent = 0
        self.events_out = False
        self.taken: asyncio.Event = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event: events.QuicEvent) -> None:
        try:
            if isinstance(event, events.HandshakeCompleted):
                self.greet()
            elif isinstance(event, events.StreamDataReceived):
                if event.stream_id not in self.frames:
                    raise Broken(f"the gateway opened stream {event.stream_id}")
                for value in self.frames[event.stream_id].feed(event.data):
                    (self.control if event.stream_id == self.CONTROL else self.call)(value)
            elif isinstance(event, events.ConnectionTerminated):
                self.worker.tell = lambda report: None
                self.ended.set_result(f"{event.error_code:#x} {event.reason_phrase}")
        except Exception as error:  # noqa: BLE001: whatever it is, this link is over
            say("broken", why=repr(error))
            self.close(error_code=1, reason_phrase=str(error)[:100])

    def send(self, stream: int, value: Any, last: bool = False) -> None:
        self._quic.send_stream_data(stream, frame(value), last)

    def greet(self) -> None:
        # Names in certificates are URIs, not host names, hence by hand; TLS has proved that the peer has the key.
        certificate = self._quic.tls._peer_certificate
        verify_certificate(certificate, self._quic.tls._peer_certificate_chain, cafile=self.options.ca)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if names.get_values_for_type(x509.UniformResourceIdentifier) != [self.options.peer]:
            raise Broken(f"the gateway is not {self.options.peer}")
        stream = self._quic.get_next_available_stream_id()
        assert stream == self.CONTROL
        if self.options.oversized == "hello":
            return self.oversized(stream)
        hello = {"protocol": {"min": PROTOCOL, "max": PROTOCOL}, "version": "interop"}
        self.send(stream, {**hello, "run": self.worker.run, "incarnation": self.worker.incarnation})

    def oversized(self, stream: int) -> None:
        say("oversized", stream=stream)
        self._quic.send_stream_data(stream, struct.pack(">I", FRAME_BYTES_MAX + 1) + bytes(64))

    def control(self, said: Any) -> None:
        if not self.up:
            welcome = said.get("accepted") or self.stop(said)
            self.worker.drained, after = welcome["drained"], welcome["eventsAfter"]
            self.up, self.events_sent = True, sum(row["seq"] <= (after or 0) for row in self.worker.log)
            say("welcome", **welcome)
            if self.options.oversized == "report":
                return self.oversized(self.CONTROL)
            if self.options.oversized == "snapshot":
                return self.oversized(self._quic.get_next_available_stream_id(is_unidirectional=True))
            self.worker.tell = self.tell
            self.send_snapshot()
        elif said == "resync":
            say("resync")
            self.send_snapshot()
        elif "taken" in said:
            say("taken", number=said["taken"]["number"])
            self.taken.set()
        elif "eventsTaken" in said:
            say("eventsTaken", seq=said["eventsTaken"]["seq"])
            self.events_out = False
        self.send_events()

    def stop(self, said: Any) -> Any:
        say("not welcome", answer=said)
        raise Broken("not welcome")

    def send_snapshot(self) -> None:
        stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        *parts, end = self.worker.snapshot()
        for part in parts:
            self.send(stream, part)
        self.send(stream, end, last=True)

    def tell(self, report: dict[str, Any]) -> None:
        self.send(self.CONTROL, report)
        self.send_events()

    def send_events(self) -> None:
        page = self.worker.log[self.events_sent :][:EVENTS_PER_PAGE_MAX]
        if self.up and page and not self.events_out:
            self.events_out = True
            self.events_sent += len(page)
            self.send(self.CONTROL, {"events": {"events": page}})

    def call(self, asked: Any) -> None:
        if self.options.lose and "dispatch" in asked["call"]:
            return self.lose(asked["call"])
        answer = self.worker.answer(asked["call"])
        say("call", call=asked["call"], answer=answer)
        self.send(self.CALLS, {"id": asked["id"], "number": self.worker.number, "answer": answer})

    def lose(self, call: Any) -> None:
        """The link ends, once, before the dispatch is carried out, or before anything is said of it."""
        self.worker.tell = lambda report: None
        if self.options.lose == "answer":
            self.worker.answer(call)
        say("lost", call=call)
        self.options.lose = None
        self.close(reason_phrase="the link is lost")

    async def beat(self) -> None:
        beats = 0
        while True:
            await asyncio.sleep(BEAT)
            beats += 1
            self._quic.send_ping(beats)
            self.worker.expire()
            if self.taken.is_set() and beats % BEATS_PER_DIGEST == 0:
                self.send(self.CONTROL, self.worker.digest())
                say("digest", number=self.worker.number)
            self.transmit()


async def dial(worker: Worker, options: argparse.Namespace) -> bool:
    """One link, from its dial to its end. True when its first snapshot was taken."""
    configuration = QuicConfiguration(
        alpn_protocols=[options.alpn], idle_timeout=IDLE_LIMIT, verify_mode=ssl.CERT_NONE
    )
    if not options.no_certificate:
        configuration.load_cert_chain(options.cert, options.key)
    host, port = options.address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    transport, link = await loop.create_datagram_endpoint(
        lambda: Link(QuicConnection(configuration=configuration), worker, options), local_addr=("0.0.0.0", 0)
    )
    beat = asyncio.create_task(link.beat())
    try:
        link.connect((host, int(port)))
        taken = asyncio.create_task(link.taken.wait())
        await asyncio.wait([taken, link.ended], timeout=LINK_BOUND, return_when=asyncio.FIRST_COMPLETED)
        taken.cancel()
        if not link.taken.is_set() and not link.ended.done():
            link.close(reason_phrase="the gateway did not take this worker in")
        # It ends: silence has a limit, and so has this program.
        say("ended", why=await link.ended)
        return link.taken.is_set()
    finally:
        beat.cancel()
        worker.tell = lambda report: None
        transport.close()


async def serve(worker: Worker, options: argparse.Namespace) -> None:
    pause = REDIAL_MIN
    while True:
        was_up = await dial(worker, options)
        if options.oversized or options.no_certificate or options.alpn != "berth/1":
            return
        pause = REDIAL_MIN if was_up else min(2 * pause, REDIAL_MAX)
        await asyncio.sleep(random.uniform(pause / 2, pause))
        worker.expire()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="the gateway's link, IPv4 and port")
    parser.add_argument("--peer", required=True, help="the gateway's name: berth://<lab>/gateway/<name>")
    for file in ("ca", "cert", "key"):
        parser.add_argument(f"--{file}", required=True)
    parser.add_argument("--resource", action="append", default=[], help="ID or ID:KEY=VALUE,KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=120, help="ends after this long at the latest")
    parser.add_argument("--alpn", default="berth/1")
    parser.add_argument("--no-certificate", action="store_true")
    parser.add_argument("--oversized", choices=["hello", "report", "snapshot"])
    parser.add_argument("--lose", choices=["dispatch", "answer"])
    options = parser.parse_args()
    resources = []
    for text in options.resource:
        name, _, labels = text.partition(":")
        resources.append(Resource(name, dict(pair.split("=", 1) for pair in labels.split(",") if pair)))
    worker = Worker(options.peer.rsplit("/", 1)[1], resources)
    try:
        asyncio.run(asyncio.wait_for(serve(worker, options), options.seconds))
    except asyncio.TimeoutError:
        say("over")


if __name__ == "__main__":
    main()
