//! The leases of a run, put together from all the answers that told of each.

use std::collections::HashMap;

use super::history::{Answer, Ask, At, Call, Entry, Hold};

/// One lease, as far as its holder was told.
#[derive(Debug, Clone)]
pub struct Grant {
    pub hold: Hold,
    pub client: u32,
    pub ask: Ask,
    /// The start of the first call that asked for it.
    pub asked: At,
    /// The end of the first answer that told of it.
    pub told: At,
    /// When it was granted, by the worker's word.
    pub granted: At,
    /// The deadline that it was granted with.
    pub promised: At,
    /// It lives until this at least, unless it is given back: the latest deadline that was told.
    pub until: At,
    /// The start of the first call that gives it back.
    pub given_back: Option<At>,
    /// The end of the first answer by which it is known to be over.
    pub over: Option<At>,
}

impl Grant {
    /// Its holder may use the resource until this, whatever happens.
    pub fn safe_until(&self) -> At {
        self.given_back.map_or(self.until, |back| back.min(self.until))
    }
}

/// Every lease that somebody was told of, by resource and fence.
pub fn grants(history: &[Entry]) -> Vec<Grant> {
    let mut asked: HashMap<u64, At> = HashMap::new();
    for entry in history.iter().filter(|entry| matches!(entry.call, Call::Ask(_))) {
        let first = asked.entry(entry.attempt).or_insert(entry.start);
        *first = entry.start.min(*first);
    }
    let mut found: HashMap<Hold, Grant> = HashMap::new();
    for entry in history {
        let (Call::Ask(ask) | Call::Poll(ask)) = &entry.call else { continue };
        let Answer::Leased(lease) = &entry.answer else { continue };
        let grant = found.entry(lease.hold.clone()).or_insert_with(|| Grant {
            hold: lease.hold.clone(),
            client: entry.client,
            ask: ask.clone(),
            asked: asked.get(&entry.attempt).copied().unwrap_or(entry.start),
            told: entry.end,
            granted: lease.granted,
            promised: lease.expires,
            until: lease.expires,
            given_back: None,
            over: None,
        });
        grant.told = grant.told.min(entry.end);
        grant.promised = grant.promised.min(lease.expires);
        grant.until = grant.until.max(lease.expires);
    }
    for entry in history {
        let (Call::Renew(hold) | Call::Release(hold)) = &entry.call else { continue };
        let Some(grant) = found.get_mut(hold) else { continue };
        let first = |former: Option<At>, at: At| Some(former.map_or(at, |former| former.min(at)));
        if matches!(entry.call, Call::Release(_)) {
            grant.given_back = first(grant.given_back, entry.start);
        }
        match &entry.answer {
            Answer::Leased(lease) => grant.until = grant.until.max(lease.expires),
            Answer::Released { .. } => grant.over = first(grant.over, entry.end),
            answer if answer.is_gone() => grant.over = first(grant.over, entry.end),
            _ => {}
        }
    }
    let mut all: Vec<Grant> = found.into_values().collect();
    all.sort_by(|one, other| one.hold.cmp(&other.hold));
    all
}

/// The same, those of each resource together.
pub fn by_resource(history: &[Entry]) -> Vec<Vec<Grant>> {
    let mut all: Vec<Vec<Grant>> = Vec::new();
    for grant in grants(history) {
        match all.last_mut() {
            Some(same) if same[0].hold.resource == grant.hold.resource => same.push(grant),
            _ => all.push(vec![grant]),
        }
    }
    all
}
