"""What a worker has, what it has promised, and what it says of it. Knows nothing of the network.

It has no waiting room and no calendar: what would have to wait is refused.
"""

import hashlib
import struct
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable

LAYOUT = 1
CHUNK_RESOURCES_MAX = 256


def micros() -> int:
    return time.time_ns() // 1_000


class Refused(Exception):
    """What was asked is refused, with a code of SPEC §11."""

    def __init__(self, code: str, message: str) -> None:
        self.answer = {"refused": {"code": code, "message": message}}


@dataclass
class Lease:
    id: str
    request: str
    mode: str
    holder: str
    ttl_ms: int
    fence: int
    note: str | None
    chosen: bool
    key: str | None
    fingerprint: str
    granted_at: int
    renewed_at: int
    deadline: float

    def row(self) -> list[Any]:
        left = min(max(int((self.deadline - time.monotonic()) * 1_000), 0), self.ttl_ms)
        times = [self.granted_at, self.renewed_at, self.ttl_ms, left]
        rest = [self.fence, self.note, self.chosen, self.key, self.fingerprint]
        return [self.id, self.request, self.mode, self.holder, *times, *rest]


@dataclass
class Resource:
    id: str
    labels: dict[str, str]
    max_shared: int = 1
    fence: int = 0
    drained: bool = False
    leases: dict[str, Lease] = field(default_factory=dict)

    def report(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "labels": self.labels,
            "maxShared": self.max_shared,
            "fence": self.fence,
            "grantable": True,
            "drained": self.drained,
            "queueLength": 0,
            "reserved": 0,
            "nextWindow": None,
            "leases": [lease.row() for lease in self.leases.values()],
        }

    def digest(self) -> int:
        truth = ["false", "true"]
        parts = ["resource", self.id, self.fence, "true", truth[self.drained], self.max_shared, 0, 0]
        for label in sorted(self.labels.items()):
            parts += label
        for lease in sorted(self.leases.values(), key=lambda lease: lease.id):
            parts += [lease.id, lease.fence, lease.renewed_at, lease.ttl_ms]
        sha = hashlib.sha256()
        for part in parts:
            text = str(part).encode()
            sha.update(struct.pack(">Q", len(text)) + text)
        return int.from_bytes(sha.digest()[:8], "big")

    def has_room(self, mode: str) -> bool:
        shared = mode == "shared" and all(lease.mode == "shared" for lease in self.leases.values())
        return len(self.leases) < (self.max_shared if shared else 1)

    def matches(self, selector: str) -> bool:
        for term in selector.split(","):
            key, equals, value = (part.strip() for part in term.partition("="))
            if not key.replace("-", "").replace(".", "").replace("_", "").isalnum():
                raise Refused("BAD_REQUEST", f"this worker knows selectors of `key=value` only, not {term!r}")
            if key not in self.labels or (equals and self.labels[key] != value):
                return False
        return True


class Worker:
    """Its resources, and the calls it carries out; `tell` is where its reports go."""

    def __init__(self, gateway: str, resources: list[Resource]) -> None:
        self.prefix = f"gw:{gateway}:"
        self.run = uuid.uuid4().bytes
        self.incarnation = time.time_ns() // 1_000_000
        self.resources = {resource.id: resource for resource in resources}
        self.drained = False
        self.number = 0
        # By request: the attempt that got a lease, and where; and the last attempt that is refused from now on.
        self.grants: dict[str, tuple[int, str, Lease]] = {}
        self.refused: dict[str, int] = {}
        self.log: list[dict[str, Any]] = []
        self.tell: Callable[[dict[str, Any]], None] = lambda report: None

    def changed(self, resource: Resource) -> None:
        self.number += 1
        numbers = {"incarnation": self.incarnation, "number": self.number}
        self.tell({"delta": {**numbers, "change": {"resource": resource.report()}}})

    def happened(self, event: str, lease: Lease, resource: Resource, **more: Any) -> None:
        facts = {"leaseId": lease.id, "resourceId": resource.id, "requester": lease.holder}
        payload = {**facts, "requestId": lease.request, "fence": lease.fence, **more}
        row = {"id": f"evt_{uuid.uuid4()}", "seq": self.incarnation + len(self.log) + 1, "at": micros()}
        self.log.append({**row, "event": event, "owner": lease.holder, "payload": payload})

    def snapshot(self) -> list[Any]:
        reports = [resource.report() for resource in self.resources.values()]
        chunks = [reports[at : at + CHUNK_RESOURCES_MAX] for at in range(0, len(reports), CHUNK_RESOURCES_MAX)]
        begin = {"begin": {"incarnation": self.incarnation, "number": self.number}}
        end = {"end": {"resources": len(reports), "waiting": 0, "settled": 0}}
        return [begin, *({"chunk": {"layout": LAYOUT, "resources": chunk}} for chunk in chunks), end]

    def digest(self) -> dict[str, Any]:
        digest = 0
        for resource in self.resources.values():
            digest ^= resource.digest()
        return {"digest": {"incarnation": self.incarnation, "number": self.number, "digest": digest}}

    def expire(self) -> None:
        for resource in self.resources.values():
            for lease in [lease for lease in resource.leases.values() if lease.deadline <= time.monotonic()]:
                self.end(resource, lease, "lease.expired")

    def end(self, resource: Resource, lease: Lease, event: str, **more: Any) -> None:
        del resource.leases[lease.id]
        self.happened(event, lease, resource, **more)
        self.changed(resource)

    def answer(self, call: Any) -> Any:
        """Carries a call out. Reports what it changes before it returns."""
        kind, asked = next(iter(call.items())) if isinstance(call, dict) else (call, {})
        carry_out = getattr(self, f"on_{kind}", None)
        try:
            if carry_out is None:
                raise Refused("BAD_REQUEST", f"this worker does not know the call {kind}")
            return carry_out(asked)
        except Refused as refused:
            return refused.answer

    def on_dispatch(self, asked: dict[str, Any]) -> Any:
        request, attempt = asked["request"], asked["attempt"]
        taken, resource_id, lease = self.grants.get(request, (0, "", None))
        if attempt > self.refused.get(request, 0) and taken == attempt:
            return {"granted": granted(resource_id, lease)}
        if attempt <= self.refused.get(request, 0) or (lease and self.holds(resource_id, lease)):
            raise Refused("STOPPING", "this attempt comes too late")
        if not asked["requester"].startswith(self.prefix):
            raise Refused("BAD_REQUEST", "the requester does not come through this gateway")
        chosen = asked["leaseId"]
        if any(chosen in resource.leases for resource in self.resources.values()):
            raise Refused("LEASE_ID_TAKEN", f"lease ID {chosen} is already in use")
        resource = self.place(asked["target"], asked["mode"], asked["door"])
        resource.fence += 1
        now = micros()
        lease = Lease(
            id=chosen or f"lse_{uuid.uuid4()}",
            request=request,
            mode=asked["mode"],
            holder=asked["requester"],
            ttl_ms=asked["ttlMs"],
            fence=resource.fence,
            note=asked["note"],
            chosen=chosen is not None,
            key=asked["key"],
            fingerprint=asked["fingerprint"],
            granted_at=now,
            renewed_at=now,
            deadline=time.monotonic() + asked["ttlMs"] / 1_000,
        )
        resource.leases[lease.id] = lease
        self.grants[request] = (attempt, resource.id, lease)
        self.happened("lease.granted", lease, resource)
        self.changed(resource)
        return {"granted": granted(resource.id, lease)}

    def holds(self, resource: str, lease: Lease) -> bool:
        return self.resources[resource].leases.get(lease.id) is lease

    def place(self, target: dict[str, str], mode: str, door: str) -> Resource:
        if (name := target.get("resource")) is not None:
            matching = [self.resources[name]] if name in self.resources else []
            absent = "UNKNOWN_RESOURCE", f"there is no {name} here"
        else:
            matching = [resource for resource in self.resources.values() if resource.matches(target["select"])]
            absent = "NO_MATCHING_RESOURCE", "nothing here matches"
        if not matching:
            raise Refused(*absent)
        free = [it for it in matching if it.has_room(mode) and not it.drained and not self.drained]
        if not free:
            busy = "NO_CAPACITY" if door == "request" else "RESOURCE_UNAVAILABLE"
            raise Refused(busy, "nothing that matches is free, and nobody waits here; ask again later")
        return free[0]

    def on_settle(self, asked: dict[str, Any]) -> Any:
        request, attempt = asked["request"], asked["attempt"]
        taken, resource_id, lease = self.grants.get(request, (0, "", None))
        if lease and taken == attempt:
            return {"settled": granted(resource_id, lease)}
        self.refused[request] = max(attempt, self.refused.get(request, 0))
        return {"settled": None}

    def lease(self, asked: dict[str, Any]) -> tuple[Resource, Lease]:
        for resource in self.resources.values():
            lease = resource.leases.get(asked["lease"])
            if lease and lease.holder.startswith(self.prefix) and asked["fence"] in (None, lease.fence):
                return resource, lease
        raise Refused("UNKNOWN_LEASE", "the lease has ended, or never was")

    def on_renew(self, asked: dict[str, Any]) -> Any:
        resource, lease = self.lease(asked)
        lease.ttl_ms = asked["ttlMs"] or lease.ttl_ms
        lease.renewed_at, lease.deadline = micros(), time.monotonic() + lease.ttl_ms / 1_000
        self.changed(resource)
        return {"renewed": granted(resource.id, lease)}

    def on_release(self, asked: dict[str, Any]) -> Any:
        self.end(*self.lease(asked), "lease.released", reason="explicit")
        return {"released": {"admitted": None}}

    def on_look(self, asked: dict[str, Any]) -> Any:
        raise Refused("UNKNOWN_LEASE_REQUEST", "nobody waits here")

    on_cancel = on_look

    def on_drainWorker(self, asked: dict[str, Any]) -> Any:
        self.drained = asked["drained"]
        return {"drained": self.drained}

    def on_room(self, asked: dict[str, Any]) -> Any:
        kind, asked = next(iter(asked.items()))
        resource = self.resources.get(asked["resource"])
        if resource is None:
            raise Refused("UNKNOWN_RESOURCE", f"there is no {asked['resource']} here")
        if kind == "drain":
            if resource.drained != asked["drained"]:
                resource.drained = asked["drained"]
                self.changed(resource)
            return {"room": {"resource": resource.report()}}
        return {"room": {"left": False} if kind == "leave" else {"waiters": {"waiters": [], "more": False}}}

    def on_calendar(self, asked: dict[str, Any]) -> Any:
        if "holds" in asked["ask"]:
            return {"calendar": {"holds": []}}
        raise Refused("BAD_REQUEST", "this worker has no calendar")


def granted(resource: str, lease: Lease) -> dict[str, Any]:
    return {"resource": resource, "lease": lease.row()}
