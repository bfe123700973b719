//! The runbook's queries are about the database that a node has.

use rusqlite::{Connection, OpenFlags};

use crate::lab::{FLEET, Lab};

const RUNBOOK: &str = include_str!("../../docs/runbook-holds.md");

fn queries() -> Vec<&'static str> {
    RUNBOOK.split("```sql\n").skip(1).map(|rest| rest.split_once("```").expect("the block ends").0).collect()
}

#[test]
fn every_query_of_the_runbook_is_understood_and_finds_nothing_wrong_in_a_new_node() {
    let lab = Lab::joined(FLEET, "rack-1");
    let file = lab.state("rack-1").join("berth.db");
    let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let queries = queries();
    assert_eq!(queries.len(), 3, "what overlaps, who is beside an exclusive lease, and the guards");
    let found = |query: &str| {
        let mut statement = database.prepare(query).unwrap_or_else(|error| panic!("{error}:\n{query}"));
        let mut rows = statement.query([]).unwrap();
        let mut found = 0;
        while rows.next().unwrap().is_some() {
            found += 1;
        }
        found
    };
    assert_eq!((found(queries[0]), found(queries[1])), (0, 0));
    assert!(found(queries[2]) > 5, "the guards are shown");
}
