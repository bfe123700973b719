//! The database alone: two programs that know nothing of the rules write the same slot straight to the file, at once.

use std::sync::{Arc, Barrier};
use std::thread;

use rusqlite::{Connection, Error};

use super::{BENCH, MINUTE_MS, booked, booking, window};
use crate::sample;
use crate::store::Database;

const ROUNDS: usize = 200;

/// What one of the two claims a window by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Booking,
    Hold,
    /// A booking of elsewhere in the calendar that is moved there.
    Move,
}

/// One program: its own connection, and where the two meet.
struct Program {
    name: usize,
    connection: Connection,
    barrier: Arc<Barrier>,
}

impl Program {
    /// Claims a window in a transaction of its own, begun when the other does; what refused it.
    fn claim(&self, round: usize, by: By, (starts_at, ends_at): (i64, i64)) -> Result<(), String> {
        self.barrier.wait();
        self.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let id = format!("{}-{round}", self.name);
        let written = match by {
            By::Booking => self.connection.execute(
                "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, created_at) \
                 VALUES (?1, ?2, 'ci', ?3, ?4, 'scheduled', 1, 0)",
                (&id, BENCH, starts_at, ends_at),
            ),
            By::Hold => self.connection.execute(
                "INSERT INTO hold (id, resource_id, holder, starts_at, ends_at, status, ttl_ms, expires_at, token_hash, \
                 created_at) VALUES (?1, ?2, 'ci', ?3, ?4, 'active', 1, 0, zeroblob(32), 0)",
                (&id, BENCH, starts_at, ends_at),
            ),
            By::Move => self.connection.execute(
                "UPDATE booking SET starts_at = ?2, ends_at = ?3 WHERE id = ?1",
                (format!("mover-{}", self.name), starts_at, ends_at),
            ),
        };
        let outcome = match written {
            Ok(1) => self.connection.execute_batch("COMMIT").map_err(|error| error.to_string()),
            Err(Error::SqliteFailure(_, Some(why))) => {
                self.connection.execute_batch("ROLLBACK").unwrap();
                Err(why)
            }
            other => panic!("{other:?}"),
        };
        self.barrier.wait();
        outcome
    }
}

fn micros(minutes: usize) -> i64 {
    sample::wall(minutes as u64 * MINUTE_MS).as_microsecond()
}

#[tokio::test]
async fn of_two_programs_that_claim_one_slot_at_once_the_database_refuses_exactly_one() {
    let database = Database::new();
    let open = database.open();
    open.calendar(vec![booked(&booking(1, window(0, 1)))]).await.unwrap();
    open.close().await;
    let barrier = Arc::new(Barrier::new(2));
    let programs = [0, 1].map(|name| {
        let connection = database.foreign();
        connection.busy_timeout(crate::store::BOUND).unwrap();
        let mover = "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, created_at) \
                     VALUES (?1, ?2, 'ci', ?3, ?4, 'scheduled', 1, 0)";
        connection.execute(mover, (format!("mover-{name}"), BENCH, -10 - 2 * name, -9 - 2 * name)).unwrap();
        Program { name: name as usize, connection, barrier: barrier.clone() }
    });
    let kinds = [By::Booking, By::Hold, By::Move];
    let play = move |program: Program| {
        let mut outcomes = Vec::new();
        for round in 0..ROUNDS {
            // Each round has an hour of its own, and the two may not have the same part of it.
            let hour = 60 * (round + 1);
            let part = match (round % 4, program.name) {
                (0, _) | (_, 0) => (hour + 20, hour + 40),
                (1, _) => (hour + 10, hour + 21),
                (2, _) => (hour + 39, hour + 50),
                (_, _) => (hour + 25, hour + 30),
            };
            let by = kinds[(round / 4 + program.name * (round / 12)) % kinds.len()];
            outcomes.push(program.claim(round, by, (micros(part.0), micros(part.1))));
        }
        outcomes
    };
    let [first, second] = programs.map(|program| thread::spawn(move || play(program))).map(|it| it.join().unwrap());
    for (round, pair) in first.iter().zip(&second).enumerate() {
        match pair {
            (Ok(()), Err(why)) | (Err(why), Ok(())) => {
                assert!(why.starts_with("no_booking_") || why.starts_with("no_hold_"), "round {round}: {why}");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    let overlaps: i64 = database
        .foreign()
        .query_row(
            "WITH claim AS (SELECT id, starts_at, ends_at FROM booking WHERE claims = 1 \
             UNION ALL SELECT id, starts_at, ends_at FROM hold WHERE status = 'active') \
             SELECT count(*) FROM claim a JOIN claim b ON a.id < b.id AND a.starts_at < b.ends_at \
             AND b.starts_at < a.ends_at",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(overlaps, 0);
}
