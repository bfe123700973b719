//! What it costs to make a booking and a hold: from the command to the durable fact, with ever more bookings on the same
//! resource, and what the guards of the database have of it.
//!
//! First a resource each with 10, 1 000 and 100 000 scheduled bookings, in a database of its own each; they take turns,
//! so that the noise of the machine falls on all alike. A round is timed from the command to the state that has taken
//! the fact in: decided, committed and flushed, applied. Then two databases with 10 000 bookings, one of them without the
//! unique indexes and the triggers of the calendar: the same inserts, one by one and 256 at once. What counts is the
//! ratio of the medians.
//!
//! `cargo bench --bench calendar`, with a number behind `--` for another count of rounds.

use std::time::Duration;

use berth::admission::calendar::CalendarCommand;
use berth::admission::resource::{Around, Change, Command, Decision, Reply, ResourceState, Rivals, apply, decide};
use berth::admission::{CalendarRules, WaitingRules};
use berth::clock::{Clock, Now};
use berth::model::{Asker, BookingId, HoldId, Requester, ResourceSpec, Role, Slot, SlotLength, TokenHash};
use berth::store::{Batch, CommitError, Store, StoreEnd};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::oneshot;

const SIZES: [usize; 3] = [10, 1_000, 100_000];
const ROUNDS: usize = 300;
const GOAL: f64 = 2.0;

/// What the guards are measured on.
const GUARDED_SIZE: usize = 10_000;
/// How many make something at once.
const CALLERS: usize = 256;
const GUARDS_GOAL: f64 = 1.5;

/// Places for bookings, five minutes apart and a minute long each; in the middle of each there is room for another.
const PLACES: usize = 100_000;
const STEP: Duration = Duration::from_secs(300);
const WIDTH: Duration = Duration::from_secs(60);
/// Shares no factor with the number of places, so that one place after another comes up everywhere.
const STRIDE: usize = 7_919;

/// One resource, its worker's store, and what memory holds of it.
struct Lab {
    store: Store,
    end: StoreEnd,
    state: ResourceState,
    spec: ResourceSpec,
    rules: CalendarRules,
    waiting: WaitingRules,
    clock: Clock,
    begin: Timestamp,
    holder: Requester,
    /// How many have been made in rooms between places.
    made: usize,
    _folder: tempfile::TempDir,
}

type Answer = oneshot::Receiver<Result<(), CommitError>>;

impl Lab {
    async fn start(size: usize, guarded: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("berth.db");
        let clock = Clock::system();
        let now = clock.now();
        let (mut store, _, _, _, mut end) = Store::open(&file, now).expect("a new database");
        if !guarded {
            drop(store);
            end.wait().await.expect("it closes");
            drop_guards(&file);
            (store, _, _, _, end) = Store::open(&file, now).expect("the same database");
        }
        let mut lab = Self {
            store,
            end,
            state: ResourceState::default(),
            spec: ResourceSpec::bare("bench-1".parse().unwrap()),
            rules: CalendarRules { bookings_max: 2 * PLACES, ..CalendarRules::default() },
            waiting: WaitingRules::default(),
            begin: now.wall.checked_add(Duration::from_secs(24 * 3600)).expect("there is a tomorrow"),
            clock,
            holder: "ci/job-17".parse().unwrap(),
            made: 0,
            _folder: folder,
        };
        let places: Vec<usize> = (0..size).map(|index| index * (PLACES / size)).collect();
        for places in places.chunks(250) {
            let windows = places.iter().map(|place| (BookingId::generate(), lab.slot(*place, 0))).collect();
            let holder = lab.holder.clone();
            lab.carry_out(CalendarCommand::Book { holder, windows, series: None, note: None }).await;
        }
        assert_eq!(lab.state.calendar.bookings().count(), size);
        lab
    }

    fn slot(&self, place: usize, minutes: u32) -> Slot {
        let starts_at = self.begin.checked_add(STEP * place as u32 + WIDTH * minutes).expect("within a year");
        Slot { starts_at, length: SlotLength::Lasting(WIDTH) }
    }

    /// A room that nobody has, far from the last one.
    fn room(&mut self) -> Slot {
        self.made += 1;
        self.slot(self.made * STRIDE % PLACES, 2)
    }

    fn book(&mut self) -> (CalendarCommand, CalendarCommand) {
        let (id, slot, holder) = (BookingId::generate(), self.room(), self.holder.clone());
        let asker = Asker { requester: self.holder.clone(), role: Role::Agent };
        let windows = vec![(id.clone(), slot)];
        let undo = CalendarCommand::Cancel { booking: id, following: false, asker };
        (CalendarCommand::Book { holder, windows, series: None, note: None }, undo)
    }

    fn hold(&mut self) -> (CalendarCommand, CalendarCommand) {
        let (id, slot, holder) = (HoldId::generate(), self.room(), self.holder.clone());
        let token = TokenHash::of(id.as_str());
        let asker = Asker { requester: self.holder.clone(), role: Role::Agent };
        let undo = CalendarCommand::Release { hold: id.clone(), token: Some(token), asker };
        (CalendarCommand::Hold { id, holder, slot, ttl: None, key: None, token }, undo)
    }

    fn decided(&self, command: CalendarCommand, now: Now) -> Vec<Change> {
        let around = Around {
            spec: &self.spec,
            rules: &self.waiting,
            max_total: None,
            calendar: &self.rules,
            holds_paused: false,
            fresh: None,
            unsettled: &std::collections::BTreeSet::new(),
            driver: &Default::default(),
            rivals: Rivals::default(),
            node: &Default::default(),
            now,
        };
        let Decision { changes, reply, .. } = decide(&self.state, &around, Command::Calendar(command));
        assert!(matches!(reply, Reply::Calendar(_)), "{reply:?}");
        changes
    }

    fn queue(&self, changes: Vec<Change>, now: Now) -> Answer {
        let (done, answer) = oneshot::channel();
        let done = Box::new(move |result| drop(done.send(result)));
        let resource = Some(self.spec.id.clone());
        self.store.commit(Batch { resource, activation: 1, changes, events: vec![], now, done });
        answer
    }

    fn apply(&mut self, changes: Vec<Change>) {
        changes.into_iter().for_each(|change| apply(&mut self.state, change));
    }

    /// From the command to the applied fact.
    async fn carry_out(&mut self, command: CalendarCommand) -> Duration {
        let now = self.clock.now();
        let changes = self.decided(command, now);
        self.queue(changes.clone(), now).await.expect("an answer").expect("it is committed");
        self.apply(changes);
        self.clock.now().run.left(now.run)
    }

    /// One made and undone again, so that there are as many as before; the making is timed.
    async fn round(&mut self, (command, undo): (CalendarCommand, CalendarCommand)) -> Duration {
        let took = self.carry_out(command).await;
        self.carry_out(undo).await;
        took
    }

    /// Bookings and holds by turns, by so many callers at once: how long the store takes for all of them.
    async fn crowd(&mut self) -> Duration {
        let now = self.clock.now();
        let (mut made, mut undone) = (Vec::new(), Vec::new());
        for index in 0..CALLERS {
            let (command, undo) = if index % 2 == 0 { self.book() } else { self.hold() };
            let changes = self.decided(command, now);
            self.apply(changes.clone());
            made.push(changes);
            undone.push(undo);
        }
        let queued = self.clock.now().run;
        let answers: Vec<Answer> = made.into_iter().map(|changes| self.queue(changes, now)).collect();
        for answer in join_all(answers).await {
            answer.expect("an answer").expect("it is committed");
        }
        let took = self.clock.now().run.left(queued);
        let mut changes = Vec::new();
        for undo in undone {
            let undone = self.decided(undo, now);
            self.apply(undone.clone());
            changes.extend(undone);
        }
        self.queue(changes, now).await.expect("an answer").expect("it is committed");
        took
    }

    async fn close(self) {
        drop(self.store);
        self.end.wait().await.expect("it closes");
    }
}

/// Takes the unique indexes and the triggers of the calendar out of a file.
fn drop_guards(file: &std::path::Path) {
    let connection = rusqlite::Connection::open(file).expect("the database");
    let guards = "SELECT type || ' ' || name FROM sqlite_schema WHERE tbl_name IN ('booking', 'hold') \
                  AND (type = 'trigger' OR sql LIKE 'CREATE UNIQUE INDEX%')";
    let mut select = connection.prepare(guards).expect("a select");
    let names = select.query_map([], |row| row.get::<_, String>(0)).expect("names");
    let names: Vec<String> = names.map(|name| name.expect("a name")).collect();
    drop(select);
    assert_eq!(names.len(), 10, "{names:?}");
    names.iter().for_each(|name| connection.execute_batch(&format!("DROP {name}")).expect("it is there"));
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn judge(what: &str, ratio: f64, goal: f64) {
    let verdict = if ratio < goal { "under" } else { "OVER" };
    println!("  {what}: {ratio:.2}, {verdict} the goal of {goal}");
}

async fn by_size(rounds: usize) {
    println!("from the command to the durable fact, median of {rounds} rounds");
    let mut labs = Vec::new();
    for size in SIZES {
        labs.push(Lab::start(size, true).await);
    }
    let mut times = [vec![Vec::new(); SIZES.len()], vec![Vec::new(); SIZES.len()]];
    for _ in 0..rounds {
        for (index, lab) in labs.iter_mut().enumerate() {
            let (book, hold) = (lab.book(), lab.hold());
            times[0][index].push(lab.round(book).await);
            times[1][index].push(lab.round(hold).await);
        }
    }
    for (what, times) in ["a booking", "a hold"].into_iter().zip(&mut times) {
        let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
        for (size, median) in SIZES.iter().zip(&medians) {
            println!("  {what:<9} beside {size:>7} bookings {median:>10.1?}");
        }
        judge("ratio of the last to the first", medians[2].as_secs_f64() / medians[0].as_secs_f64(), GOAL);
    }
    for lab in labs {
        lab.close().await;
    }
}

async fn by_guards(rounds: usize) {
    println!("the guards of the database, beside {GUARDED_SIZE} bookings, median of {rounds} rounds");
    let mut labs = [Lab::start(GUARDED_SIZE, false).await, Lab::start(GUARDED_SIZE, true).await];
    let mut times = [[(); 2]; 2].map(|pair| pair.map(|()| Vec::new()));
    // What the one has written is flushed behind the other's back, so they take turns at the first place too.
    for round in 0..rounds {
        for index in [round % 2, (round + 1) % 2] {
            let lab = &mut labs[index];
            let one = if round / 2 % 2 == 0 { lab.book() } else { lab.hold() };
            times[0][index].push(lab.round(one).await);
        }
    }
    for round in 0..rounds {
        for index in [round % 2, (round + 1) % 2] {
            times[1][index].push(labs[index].crowd().await);
        }
    }
    let crowd = format!("{CALLERS} at once");
    for (what, times) in ["one by one", crowd.as_str()].into_iter().zip(&mut times) {
        let [without, with] = times.each_mut().map(|times| median(times));
        println!("  {what:<12} without {without:>10.1?}, with {with:>10.1?}");
        judge("ratio of with to without", with.as_secs_f64() / without.as_secs_f64(), GUARDS_GOAL);
    }
    for lab in labs {
        lab.close().await;
    }
}

fn main() {
    // Cargo hands `--bench` in.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(by_size(rounds));
    runtime.block_on(by_guards(rounds));
}
