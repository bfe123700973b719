//! Small histories, told by hand: what the checks are tried on. Times are in milliseconds.

use std::ops::Range;
use std::time::Duration;

use super::history::{Answer, Ask, At, Call, Entry, Fact, Fault, Hold, Lease, Logged, Run, Wait};

/// A moment of a story.
pub fn ms(ms: u64) -> At {
    Duration::from_millis(ms)
}

/// A lease of the one board of a story.
pub fn board(fence: u64) -> Hold {
    Hold { resource: "board".to_owned(), fence }
}

/// An ask for the board by name.
pub fn ask(wait: Wait) -> Ask {
    Ask { requester: "admin/c0".to_owned(), key: None, resource: Some("board".to_owned()), wait, priority: 0 }
}

/// The answer that there is a lease.
pub fn lease(fence: u64, granted: u64, expires: u64) -> Answer {
    let id = format!("lease-{fence}");
    let ttl = ms(expires.saturating_sub(granted));
    Answer::Leased(Lease { hold: board(fence), id, granted: ms(granted), ttl, expires: ms(expires) })
}

impl Run {
    /// One more call of a client at a worker's door, all of its calls being one attempt.
    pub fn call(mut self, client: u32, times: Range<u64>, call: Call, answer: Answer) -> Self {
        let (start, end) = (ms(times.start), ms(times.end));
        let call = match call {
            Call::Ask(ask) => Call::Ask(Ask { requester: format!("admin/c{client}"), ..ask }),
            Call::Poll(ask) => Call::Poll(Ask { requester: format!("admin/c{client}"), ..ask }),
            other => other,
        };
        let entry = Entry { client, attempt: client.into(), door: "rack-1".to_owned(), start, end, call, answer };
        self.history.push(entry);
        self
    }

    /// The last call was sent to another node.
    pub fn through(mut self, door: &str) -> Self {
        self.history.last_mut().expect("something was called").door = door.to_owned();
        self
    }

    /// A client takes the board for so long.
    pub fn takes(self, client: u32, fence: u64, times: Range<u64>, until: u64) -> Self {
        let answer = lease(fence, times.start + 1, until);
        self.call(client, times, Call::Ask(ask(Wait::No)), answer)
    }

    /// A client is refused the board.
    pub fn refused(self, client: u32, times: Range<u64>, code: &str) -> Self {
        self.call(client, times, Call::Ask(ask(Wait::No)), Answer::refused(code))
    }

    /// A client's lease goes on.
    pub fn renews(self, client: u32, fence: u64, times: Range<u64>, until: u64) -> Self {
        self.call(client, times, Call::Renew(board(fence)), lease(fence, 0, until))
    }

    /// A client gives its lease back.
    pub fn releases(self, client: u32, fence: u64, times: Range<u64>) -> Self {
        self.call(client, times, Call::Release(board(fence)), Answer::Released { next: None })
    }

    /// The worker has written this in its log.
    pub fn logs(mut self, fact: Fact, fence: u64, at: u64, requester: &str) -> Self {
        let (worker, requester) = ("rack-1".to_owned(), requester.to_owned());
        self.log.push(Logged { worker, at: ms(at), hold: board(fence), requester, fact });
        self
    }

    /// Something was done to a node.
    pub fn fault(mut self, node: &str, times: Range<u64>) -> Self {
        let (from, to) = (ms(times.start), ms(times.end));
        self.faults.push(Fault { node: node.to_owned(), what: "stopped", from, to });
        self
    }
}

/// Panics unless the check finds nothing.
#[track_caller]
pub fn passes(check: fn(&Run) -> Vec<String>, run: &Run) {
    assert_eq!(check(run), Vec::<String>::new());
}

/// Panics unless the check finds one thing, in such words.
#[track_caller]
pub fn is_caught(check: fn(&Run) -> Vec<String>, run: &Run, words: &str) {
    match check(run).as_slice() {
        [found] => assert!(found.contains(words), "{found}"),
        found => panic!("{found:?}"),
    }
}
