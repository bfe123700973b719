//! I8: every waiter that fits is granted once faults end.

use std::time::Duration;

use crate::chaos::history::Run;

/// Each client has waited for one more lease after the last fault, has had it and has given it back, within this: the
/// longest lease that somebody has left behind, and a turn for each of those ahead.
pub const BOUND: Duration = Duration::from_secs(90);

/// Asks every client.
pub fn everybody(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for (client, done) in &run.clients {
        match done {
            Some(done) if *done <= run.healed + BOUND => {}
            Some(done) => {
                found.push(format!("client {client} was served {:?} after the last fault", *done - run.healed))
            }
            None => {
                let last = run.history.iter().rev().find(|entry| entry.client == *client);
                found.push(format!("client {client} was not served within {BOUND:?}; its last call: {last:?}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::story::{is_caught, ms, passes};

    #[test]
    fn a_client_that_is_not_served_is_caught() {
        let run = |done| Run { healed: ms(1000), clients: vec![(1, Some(ms(2000))), (2, done)], ..Run::default() };
        passes(everybody, &run(Some(ms(91_000))));
        is_caught(everybody, &run(Some(ms(91_001))), "client 2 was served 90.001s after");
        is_caught(everybody, &run(None), "client 2 was not served");
    }
}
