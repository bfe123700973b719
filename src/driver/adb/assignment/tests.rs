//! The rule against examples, and against everything that it promises.

use proptest::prelude::*;

use super::*;

fn resource(name: &str) -> ResourceId {
    name.parse().unwrap()
}

fn serial(name: &str) -> Serial {
    name.parse().unwrap()
}

/// Labels from `k=v,k=v`.
fn labels(text: &str) -> Labels {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        (key.parse().unwrap(), value.parse().unwrap())
    };
    text.split(',').filter(|pair| !pair.is_empty()).map(pair).collect()
}

/// A wish from `=SERIAL` or labels, and a pin behind `@`.
fn wish(text: &str) -> Wish {
    let (which, pinned) = text.split_once('@').map_or((text, None), |(which, pin)| (which, Some(serial(pin))));
    let which = match which.strip_prefix('=') {
        Some(serial) => AdbWhich::Serial(serial.to_owned()),
        None => AdbWhich::Match(labels(which)),
    };
    Wish { which, pinned }
}

fn wishes(all: &[(&str, &str)]) -> BTreeMap<ResourceId, Wish> {
    all.iter().map(|(name, text)| (resource(name), wish(text))).collect()
}

/// A bench of devices: serial and labels, `?` for one that cannot be read.
type Bench = BTreeMap<Serial, Option<Labels>>;

fn bench(all: &[(&str, &str)]) -> Bench {
    all.iter().map(|(name, text)| (serial(name), (*text != "?").then(|| labels(text)))).collect()
}

fn listed(bench: &Bench) -> Listed<'_> {
    bench.iter().map(|(serial, labels)| (serial, labels.as_ref())).collect()
}

/// The assignment as `resource serial`, one behind the other.
fn assign(assignment: &mut Assignment, asked: &[(&str, &str)], devices: &[(&str, &str)]) -> String {
    let bench = bench(devices);
    let given = assignment.assign(&wishes(asked), &listed(&bench));
    given.iter().map(|(resource, serial)| format!("{resource}:{serial}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_bound_device_is_nobody_elses() {
    let asked = [("a", "model=P"), ("b", "=S1")];
    let mut now = Assignment::default();
    assert_eq!(assign(&mut now, &asked, &[("S1", "model=P"), ("S2", "model=P")]), "a:S2 b:S1");
    // Also while it is away, and when it comes first.
    assert_eq!(assign(&mut Assignment::default(), &asked, &[("S2", "model=P")]), "a:S2 b:S1");
    assert_eq!(assign(&mut Assignment::default(), &asked, &[("S1", "model=P")]), "b:S1");
}

#[test]
fn a_device_comes_back_to_the_resource_that_had_it() {
    let asked = [("a", "model=P"), ("b", "model=P")];
    let mut now = Assignment::default();
    assert_eq!(assign(&mut now, &asked, &[("S1", "model=P"), ("S2", "model=P")]), "a:S1 b:S2");
    assert_eq!(assign(&mut now, &asked, &[("S2", "model=P")]), "b:S2", "nothing moves up");
    assert_eq!(assign(&mut now, &asked, &[]), "");
    assert_eq!(assign(&mut now, &asked, &[("S2", "model=P")]), "b:S2", "and not when it comes back first either");
    assert_eq!(assign(&mut now, &asked, &[("S1", "?"), ("S2", "model=P")]), "a:S1 b:S2", "before it can be read");
}

#[test]
fn a_spare_is_adopted_and_the_former_device_is_then_anyones() {
    let asked = [("a", "model=P"), ("b", "model=P,os=14")];
    let mut now = Assignment::default();
    assert_eq!(assign(&mut now, &asked, &[("S1", "model=P,os=14")]), "b:S1", "the choosy one goes first");
    assert_eq!(assign(&mut now, &asked, &[("S2", "model=P,os=14")]), "b:S2");
    assert_eq!(assign(&mut now, &asked, &[("S1", "model=P,os=14"), ("S2", "model=P,os=14")]), "a:S1 b:S2");
}

#[test]
fn a_leased_resource_is_the_device_it_was_leased_as() {
    let mut now = Assignment::default();
    let spare = [("S2", "model=P")];
    assert_eq!(assign(&mut now, &[("a", "model=P@S1"), ("b", "model=P")], &spare), "a:S1 b:S2");
    let both = [("S1", "model=P"), ("S2", "model=P")];
    assert_eq!(
        assign(&mut now, &[("a", "model=P@S1"), ("b", "=S1")], &both),
        "a:S1",
        "even from one that is bound to it"
    );
    assert_eq!(assign(&mut now, &[("a", "model=P"), ("b", "=S1")], &both), "a:S2 b:S1");
}

#[test]
fn a_device_that_no_longer_fits_is_given_up() {
    let asked = [("a", "os=14")];
    let mut now = Assignment::default();
    assert_eq!(assign(&mut now, &asked, &[("S1", "os=14")]), "a:S1");
    assert_eq!(assign(&mut now, &asked, &[("S1", "?")]), "a:S1");
    assert_eq!(assign(&mut now, &asked, &[("S1", "os=15")]), "");
}

/// A few resources, devices and labels, so that they get into each other's way.
fn any_wishes() -> impl Strategy<Value = BTreeMap<ResourceId, Wish>> {
    let which = prop_oneof![
        (0..4).prop_map(|n| format!("=S{n}")),
        (0..2).prop_map(|n| format!("model=M{n}")),
        (0..2, 0..2).prop_map(|(n, os)| format!("model=M{n},os={os}")),
        Just(String::new()),
    ];
    let pin = prop_oneof![4 => Just(String::new()), 1 => (0..4).prop_map(|n| format!("@S{n}"))];
    let wish = (which, pin).prop_map(|(which, pin)| wish(&(which + &pin)));
    prop::collection::btree_map((0..5).prop_map(|n| resource(&format!("r{n}"))), wish, 0..5)
}

fn any_bench() -> impl Strategy<Value = Bench> {
    let read = (0..2, 0..2).prop_map(|(n, os)| Some(labels(&format!("model=M{n},os={os}"))));
    let device = prop_oneof![4 => read, 1 => Just(None)];
    prop::collection::btree_map((0..5).prop_map(|n| serial(&format!("S{n}"))), device, 0..5)
}

proptest! {
    #[test]
    fn the_rule_keeps_what_it_promises(steps in prop::collection::vec((any_wishes(), any_bench()), 1..12)) {
        let mut assignment = Assignment::default();
        let mut before = BTreeMap::new();
        for (wishes, bench) in steps {
            let devices = listed(&bench);
            let given = assignment.assign(&wishes, &devices);
            let again = assignment.clone().assign(&wishes, &devices);
            prop_assert_eq!(&given, &again, "nothing moves by itself");

            let used: BTreeSet<&Serial> = given.values().collect();
            prop_assert_eq!(used.len(), given.len(), "no device stands for two resources");
            let pinned: BTreeSet<&Serial> = wishes.values().filter_map(|wish| wish.pinned.as_ref()).collect();
            let bound: BTreeSet<Serial> = wishes.iter().filter_map(super::bound).map(|(_, serial)| serial).collect();
            for (resource, wish) in &wishes {
                let has = given.get(resource);
                match (&wish.pinned, &wish.which) {
                    (Some(pin), _) => prop_assert!(has.is_none_or(|has| has == pin) && used.contains(pin)),
                    (None, AdbWhich::Serial(own)) => {
                        prop_assert!(has.is_none_or(|has| has.as_str() == own));
                        prop_assert!(used.iter().any(|serial| serial.as_str() == own) , "a bound device is given");
                    }
                    (None, AdbWhich::Match(asked)) => {
                        let fits = |serial: &Serial| match devices.get(serial) {
                            Some(Some(labels)) => fit(asked, labels),
                            // It is kept, but not adopted.
                            Some(None) => has == Some(serial),
                            None => false,
                        };
                        let open = |serial: &Serial| !pinned.contains(serial) && !bound.contains(serial);
                        prop_assert!(has.is_none_or(|has| fits(has) && open(has)));
                        let spare = devices.keys().find(|serial| open(serial) && !used.contains(**serial) && fits(serial));
                        prop_assert!(has.is_some() || spare.is_none(), "{resource} goes without {spare:?}");
                        let former: Option<&Serial> = before.get(resource);
                        if let Some(former) = former.filter(|former| open(former)) {
                            let still = devices.get(former).is_some_and(|labels| labels.is_none_or(|labels| fit(asked, labels)));
                            prop_assert!(!still || has == Some(former), "{resource} has lost {former} without need");
                        }
                    }
                }
            }
            before = given;
        }
    }

    #[test]
    fn whatever_returns_finds_its_resource_in_any_order(
        bench in any_bench(), wishes in any_wishes(), order in Just([0, 1, 2, 3, 4]).prop_shuffle(),
    ) {
        let mut assignment = Assignment::default();
        let all = assignment.assign(&wishes, &listed(&bench));
        assignment.assign(&wishes, &Listed::new());
        let mut back = Bench::new();
        let mut given = assignment.assign(&wishes, &Listed::new());
        for number in order {
            let serial = serial(&format!("S{number}"));
            if let Some(labels) = bench.get(&serial) {
                back.insert(serial, labels.clone());
                given = assignment.assign(&wishes, &listed(&back));
            }
        }
        // Who is offered a spare before the own one comes back takes it.
        prop_assert!(given.len() >= all.len());
        let used: BTreeSet<&Serial> = all.values().collect();
        let spare = bench.iter().any(|(serial, labels)| labels.is_some() && !used.contains(serial));
        prop_assert!(spare || given == all, "{given:?} instead of {all:?}");
    }
}
