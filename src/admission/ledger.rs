//! Who holds or asks for what: the checks 2 to 4 of SPEC §2, in their order.
//!
//! A request enters by [`Ledger::admit`], which reserves its requester, its lease id and its key in the same step
//! in which it checks them. It leaves by [`Ledger::refuse`] or, once granted, by [`Ledger::end`]. A key that is to
//! be remembered outlives both until [`Ledger::forget`].
//!
//! An unattended waiter holds its requester and its lease id between two asks. An ask for the resource that it waits
//! for is no second request: it takes the waiter's reservations over ([`Admitted::Again`]) and, when it is answered,
//! leaves them to whatever stands in the waiting room then ([`Ledger::waits`]).

use std::collections::HashMap;

use crate::model::{
    Ask, ChosenLeaseId, Code, Fingerprint, IdempotencyKey, LeaseId, Refusal, RequestId, Requester, ResourceAddress,
    WaitPolicy,
};

/// Reservations of requesters, lease ids and idempotency keys.
#[derive(Debug)]
pub struct Ledger {
    requester_max: usize,
    entries: HashMap<RequestId, Entry>,
    by_requester: HashMap<Requester, Vec<RequestId>>,
    by_lease: HashMap<LeaseId, RequestId>,
    keys: HashMap<(Requester, IdempotencyKey), Remembered>,
}

/// What one open or granted request holds.
#[derive(Debug, Clone)]
struct Entry {
    requester: Requester,
    lease: Option<LeaseId>,
    /// The id that an unattended waiter had before its latest ask, until that is answered.
    former_lease: Option<LeaseId>,
    granted: bool,
    key: Option<IdempotencyKey>,
    /// The resource in whose waiting room it stands unattended, or wants to.
    waits_for: Option<ResourceAddress>,
    /// True while an ask of it is under way.
    asking: bool,
}

#[derive(Debug, Clone)]
struct Remembered {
    request: RequestId,
    fingerprint: Fingerprint,
}

/// Who speaks for the request. A gateway has made checks 2 and 3 for its own requesters and deduplicates by
/// request and attempt, so a worker does not repeat them (SPEC §9 Dispatch). That an unattended waiter asks again is seen
/// for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The requester itself.
    Requester,
    /// A gateway.
    Gateway,
}

/// How a request came through the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// A new request; its reservations are made.
    New,
    /// Its key is known: the answer of this request is its answer.
    Replay(RequestId),
    /// An unattended waiter asks again for what it waits for; the ask has taken its reservations over.
    Again,
    /// The same, while this ask of it is not answered yet: it comes after that.
    Behind(RequestId),
}

impl Ledger {
    /// An empty ledger in which a requester may have `requester_max` leases and open requests.
    pub fn new(requester_max: usize) -> Self {
        assert!(requester_max > 0, "a requester may have at least one lease");
        Self {
            requester_max,
            entries: HashMap::new(),
            by_requester: HashMap::new(),
            by_lease: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// So many active leases and waiting entries a requester may have from now on; what is there stays.
    pub fn set_requester_max(&mut self, requester_max: usize) {
        assert!(requester_max > 0, "a requester may have at least one lease");
        self.requester_max = requester_max;
    }

    /// Checks a request and reserves what it names. `by_name` is the resource that a request of the first door is for:
    /// there an unattended waiter may ask again.
    ///
    /// # Errors
    /// `IDEMPOTENCY_CONFLICT`, `REQUESTER_ALREADY_LEASED`, `LEASE_ID_TAKEN`, in this order; nothing is reserved.
    pub fn admit(
        &mut self,
        ask: &Ask,
        speaker: Speaker,
        by_name: Option<&ResourceAddress>,
    ) -> Result<Admitted, Refusal> {
        let held = self.by_requester.get(&ask.requester).map_or(&[][..], Vec::as_slice);
        let waits_there = |id: &&RequestId| {
            by_name.is_some() && self.entries.get(id).is_some_and(|entry| entry.waits_for.as_ref() == by_name)
        };
        let standing = held.iter().find(waits_there).cloned();
        let own_key = ask.key.clone().filter(|_| speaker == Speaker::Requester);
        debug_assert!(
            standing.as_ref() == Some(&ask.id) || !self.entries.contains_key(&ask.id),
            "a request is admitted once"
        );
        if speaker == Speaker::Requester {
            let known = own_key.as_ref().and_then(|key| self.keys.get(&(ask.requester.clone(), key.clone())));
            if let Some(known) = known {
                return if known.fingerprint == ask.fingerprint() {
                    Ok(Admitted::Replay(known.request.clone()))
                } else {
                    Err(idempotency_conflict())
                };
            }
            if standing.is_none() && held.len() >= self.requester_max {
                return Err(self.already_leased(&ask.requester, held));
            }
        }
        if let Some(id) = standing.as_ref().filter(|id| self.entries.get(id).is_some_and(|entry| entry.asking)) {
            return Ok(Admitted::Behind(id.clone()));
        }
        let lease = ask.lease_id.clone().map(LeaseId::from);
        let of_another = |lease: &&LeaseId| self.by_lease.get(lease).is_some_and(|id| Some(id) != standing.as_ref());
        if let Some(lease) = lease.as_ref().filter(of_another) {
            return Err(lease_id_taken(lease));
        }
        let mut entry = Entry {
            requester: ask.requester.clone(),
            lease,
            former_lease: None,
            granted: false,
            key: own_key,
            waits_for: by_name.cloned().filter(|_| ask.wait == WaitPolicy::JoinWaitingRoom || standing.is_some()),
            asking: true,
        };
        let admitted = match standing {
            Some(standing) => {
                let former = self.remove(&standing).and_then(|former| former.lease);
                entry.former_lease = former.clone().filter(|_| entry.lease.is_some() && entry.lease != former);
                entry.lease = entry.lease.or(former);
                Admitted::Again
            }
            None => Admitted::New,
        };
        self.insert(&ask.id, entry, ask.fingerprint());
        Ok(admitted)
    }

    /// The ask `request` of an unattended waiter is answered, and it stands in the waiting room as `entry`, with this
    /// lease id if it chose one. Its key is free: the same key is a new try.
    pub fn waits(&mut self, request: &RequestId, entry: &RequestId, lease: Option<&ChosenLeaseId>) {
        let Some(former) = self.remove(request) else { return };
        self.forget_key(&former.requester, former.key.as_ref(), request);
        let lease = lease.cloned().map(LeaseId::from);
        let stands = Entry { lease, former_lease: None, key: None, asking: false, ..former };
        self.insert_with(entry, stands, None);
    }

    /// Whose this open or granted request is.
    pub fn requester_of(&self, request: &RequestId) -> Option<&Requester> {
        self.entries.get(request).map(|entry| &entry.requester)
    }

    /// The room in which this entry stands unattended, and whose entry it is.
    pub fn waits_for(&self, request: &RequestId) -> Option<(&ResourceAddress, &Requester)> {
        let entry = self.entries.get(request).filter(|entry| !entry.asking)?;
        Some((entry.waits_for.as_ref()?, &entry.requester))
    }

    /// Enters an unattended waiter that is already a fact: read from disk, or reported by a worker. A lease id that
    /// another has is not its own.
    pub fn restore_waiter(
        &mut self,
        request: &RequestId,
        requester: &Requester,
        resource: ResourceAddress,
        lease: Option<&ChosenLeaseId>,
    ) {
        let entry = Entry {
            requester: requester.clone(),
            lease: self.free_id(lease),
            former_lease: None,
            granted: false,
            key: None,
            waits_for: Some(resource),
            asking: false,
        };
        self.insert_with(request, entry, None);
    }

    /// Enters a lease request that is already a fact and waits: reported by a worker. Its key stands for it, and a lease id
    /// that another has is not its own.
    pub fn restore_open(
        &mut self,
        request: &RequestId,
        requester: &Requester,
        lease: Option<&ChosenLeaseId>,
        key: Option<(IdempotencyKey, Fingerprint)>,
    ) {
        let fingerprint = key.as_ref().map(|(_, fingerprint)| *fingerprint);
        let entry = Entry {
            requester: requester.clone(),
            lease: self.free_id(lease),
            former_lease: None,
            granted: false,
            key: key.map(|(key, _)| key),
            waits_for: None,
            asking: true,
        };
        self.insert_with(request, entry, fingerprint);
    }

    fn free_id(&self, lease: Option<&ChosenLeaseId>) -> Option<LeaseId> {
        lease.cloned().map(LeaseId::from).filter(|lease| !self.by_lease.contains_key(lease))
    }

    /// Enters a granted lease that is already a fact: read from disk, or reported by a worker. Its key, if it has
    /// one, stands for it from now on. A former lease of that id is over; an open request that asked for the id will not
    /// get it, but keeps its requester and its key until it ends.
    pub fn restore(
        &mut self,
        request: &RequestId,
        requester: &Requester,
        lease: &LeaseId,
        key: Option<(IdempotencyKey, Fingerprint)>,
    ) {
        let fingerprint = key.as_ref().map(|(_, fingerprint)| *fingerprint);
        let key = key.map(|(key, _)| key);
        let entry = Entry {
            requester: requester.clone(),
            lease: Some(lease.clone()),
            former_lease: None,
            granted: true,
            key,
            waits_for: None,
            asking: false,
        };
        self.remove(request);
        if let Some(holder) = self.by_lease.remove(lease) {
            match self.entries.get_mut(&holder) {
                Some(open) if !open.granted => open.lease = None,
                _ => drop(self.remove(&holder)),
            }
        }
        self.insert_with(request, entry, fingerprint);
    }

    /// Remembers the key of a settled request that holds nothing any more.
    pub fn remember(
        &mut self,
        request: &RequestId,
        requester: &Requester,
        key: IdempotencyKey,
        fingerprint: Fingerprint,
    ) {
        self.keys.insert((requester.clone(), key), Remembered { request: request.clone(), fingerprint });
    }

    /// The request was granted `lease`.
    ///
    /// Answers with the request whose lease had that id before and is over by that.
    pub fn grant(&mut self, request: &RequestId, lease: &LeaseId) -> Option<RequestId> {
        if !self.entries.contains_key(request) {
            return None;
        }
        // Its end has not been heard of yet, but one id names one lease.
        let former = self.by_lease.get(lease).filter(|holder| *holder != request).cloned();
        let former = former.filter(|holder| self.entries.get(holder).is_some_and(|entry| entry.granted));
        if let Some(former) = &former {
            self.remove(former);
        }
        let entry = self.entries.get_mut(request)?;
        entry.granted = true;
        entry.waits_for = None;
        if let Some(unused) = entry.former_lease.take() {
            self.by_lease.remove(&unused);
        }
        if let Some(reserved) = entry.lease.replace(lease.clone())
            && reserved != *lease
        {
            self.by_lease.remove(&reserved);
        }
        self.by_lease.insert(lease.clone(), request.clone());
        former
    }

    /// The request ended without a lease: requester, lease id and key are free.
    pub fn refuse(&mut self, request: &RequestId) {
        if let Some(entry) = self.remove(request) {
            self.forget_key(&entry.requester, entry.key.as_ref(), request);
        }
    }

    /// The request ended without a lease, and its key goes on standing for that: requester and lease id are free.
    pub fn close(&mut self, request: &RequestId) {
        self.remove(request);
    }

    /// The lease ended: requester and lease id are free; the key still stands for the request.
    pub fn end(&mut self, lease: &LeaseId) {
        // A request that only asks for this id holds no lease yet.
        if let Some(request) = self.by_lease.get(lease).cloned()
            && self.entries.get(&request).is_some_and(|entry| entry.granted)
        {
            self.remove(&request);
        }
    }

    /// The key no longer stands for the request.
    pub fn forget(&mut self, requester: &Requester, key: &IdempotencyKey, request: &RequestId) {
        self.forget_key(requester, Some(key), request);
    }

    /// The request that holds `lease`, or has reserved its id.
    pub fn holder_of(&self, lease: &LeaseId) -> Option<&RequestId> {
        self.by_lease.get(lease)
    }

    /// The request that a key stands for, and what it asked for.
    pub fn request_of_key(&self, requester: &Requester, key: &IdempotencyKey) -> Option<(&RequestId, Fingerprint)> {
        let known = self.keys.get(&(requester.clone(), key.clone()))?;
        Some((&known.request, known.fingerprint))
    }

    /// How many requests are open or granted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when nothing is open and nothing granted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn insert(&mut self, request: &RequestId, entry: Entry, fingerprint: Fingerprint) {
        let fingerprint = entry.key.is_some().then_some(fingerprint);
        self.insert_with(request, entry, fingerprint);
    }

    fn insert_with(&mut self, request: &RequestId, entry: Entry, fingerprint: Option<Fingerprint>) {
        self.by_requester.entry(entry.requester.clone()).or_default().push(request.clone());
        for lease in entry.lease.iter().chain(&entry.former_lease) {
            self.by_lease.insert(lease.clone(), request.clone());
        }
        if let (Some(key), Some(fingerprint)) = (&entry.key, fingerprint) {
            self.remember(request, &entry.requester, key.clone(), fingerprint);
        }
        self.entries.insert(request.clone(), entry);
    }

    fn remove(&mut self, request: &RequestId) -> Option<Entry> {
        let entry = self.entries.remove(request)?;
        if let Some(held) = self.by_requester.get_mut(&entry.requester) {
            held.retain(|other| other != request);
            if held.is_empty() {
                self.by_requester.remove(&entry.requester);
            }
        }
        for lease in entry.lease.iter().chain(&entry.former_lease) {
            if self.by_lease.get(lease) == Some(request) {
                self.by_lease.remove(lease);
            }
        }
        Some(entry)
    }

    fn forget_key(&mut self, requester: &Requester, key: Option<&IdempotencyKey>, request: &RequestId) {
        let Some(key) = key else { return };
        let place = (requester.clone(), key.clone());
        if self.keys.get(&place).is_some_and(|known| known.request == *request) {
            self.keys.remove(&place);
        }
    }

    fn already_leased(&self, requester: &Requester, held: &[RequestId]) -> Refusal {
        let entries = || held.iter().filter_map(|request| Some((request, self.entries.get(request)?)));
        let lease = entries().find(|(_, entry)| entry.granted).and_then(|(_, entry)| entry.lease.as_ref());
        let room = entries().find_map(|(_, entry)| entry.waits_for.as_ref());
        let open = entries().find(|(_, entry)| !entry.granted && entry.waits_for.is_none()).map(|(request, _)| request);
        let what = match (lease, open, room) {
            (Some(lease), ..) => format!("holds lease {lease}; release it with `berth lease release {lease}`"),
            (_, Some(open), _) => format!("waits with request {open}; cancel it with `berth lease cancel {open}`"),
            (.., Some(room)) => format!("waits for {room}; leave its waiting room with `berth lease leave {room}`"),
            _ => "has as many leases as it may".to_owned(),
        };
        let mut refusal = Refusal::new(
            Code::RequesterAlreadyLeased,
            format!("{requester} already {what}, or ask under another requester"),
        )
        .with("requesterId", requester.to_string());
        if let Some(lease) = lease {
            refusal = refusal.with("existingLeaseId", lease.as_str());
        }
        if let Some(open) = open {
            refusal = refusal.with("existingRequestId", open.as_str());
        }
        refusal
    }
}

/// `LEASE_ID_TAKEN` for `lease`.
pub(crate) fn lease_id_taken(lease: &LeaseId) -> Refusal {
    Refusal::new(Code::LeaseIdTaken, format!("lease ID {lease} is already in use")).with("leaseId", lease.as_str())
}

fn idempotency_conflict() -> Refusal {
    Refusal::new(
        Code::IdempotencyConflict,
        "this idempotency key came first with another target, mode or leaseId; use a new key for a new request",
    )
}
