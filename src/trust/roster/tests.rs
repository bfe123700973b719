//! The roster's rules, by example and against a small model.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::super::InvitationSecret;
use super::*;
use crate::model::Code;

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

fn key(number: u8) -> Sha256Print {
    Sha256Print::of(&[number])
}

fn secret() -> SecretHash {
    InvitationSecret::generate().unwrap().hash()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[test]
fn the_first_key_of_a_configured_worker_is_its_key_from_then_on() {
    let mut roster = Roster::default();
    assert_eq!(roster.admit(&name("rack-1"), key(1)), Err(Stranger::Unknown));
    roster.configure([&name("rack-1")].into_iter()).unwrap();
    assert_eq!(roster.admit(&name("rack-1"), key(1)), Ok(()));
    let known = roster.clone();
    assert_eq!(roster.admit(&name("rack-1"), key(2)), Err(Stranger::AnotherKey));
    assert_eq!(roster.admit(&name("rack-1"), key(1)), Ok(()));
    roster.configure([&name("rack-1")].into_iter()).unwrap();
    assert_eq!(roster, known, "the next start forgets nothing");
}

#[test]
fn a_revoked_key_is_never_accepted_again_and_a_new_one_may_take_the_name() {
    let mut roster = Roster::default();
    let (rack, other) = (name("rack-1"), name("rack-2"));
    roster.configure([&rack, &other].into_iter()).unwrap();
    roster.admit(&rack, key(1)).unwrap();
    assert_eq!(roster.remove(&rack, true).unwrap().key, Some(key(1)));
    assert_eq!(roster.remove(&rack, true).unwrap_err().code, Code::UnknownWorker);
    roster.configure([&rack].into_iter()).unwrap();
    assert_eq!(roster.admit(&rack, key(1)), Err(Stranger::Revoked));
    assert_eq!(roster.admit(&other, key(1)), Err(Stranger::Revoked), "under no name");
    let secret = secret();
    roster.invite(&rack, secret, at(0)).unwrap();
    assert_eq!(roster.join(&rack, secret, key(1), at(1)), Err(NotJoined::Revoked));
    roster.join(&rack, secret, key(2), at(1)).unwrap();
    assert_eq!(roster.admit(&rack, key(2)), Ok(()));
}

#[test]
fn a_worker_that_is_removed_without_being_revoked_may_come_back_with_its_key() {
    let mut roster = Roster::default();
    roster.configure([&name("rack-1")].into_iter()).unwrap();
    roster.admit(&name("rack-1"), key(1)).unwrap();
    roster.remove(&name("rack-1"), false).unwrap();
    assert_eq!(roster.admit(&name("rack-1"), key(1)), Err(Stranger::Unknown));
    roster.configure([&name("rack-1")].into_iter()).unwrap();
    assert_eq!(roster.admit(&name("rack-1"), key(1)), Ok(()));
}

#[test]
fn an_invitation_is_spent_by_the_first_key_and_answers_that_key_again_at_any_time() {
    let mut roster = Roster::default();
    let (rack, secret) = (name("rack-3"), secret());
    assert_eq!(roster.join(&rack, secret, key(1), at(0)), Err(NotJoined::NotInvited));
    roster.invite(&rack, secret, at(0)).unwrap();
    assert!(roster.get(&rack).is_none(), "an invited machine is no worker yet");
    roster.join(&rack, secret, key(1), at(3599)).unwrap();
    assert_eq!(roster.get(&rack).unwrap().key, Some(key(1)));
    let spent = roster.clone();
    roster.join(&rack, secret, key(1), at(90_000)).unwrap();
    assert_eq!(roster.join(&rack, secret, key(2), at(3600)), Err(NotJoined::Spent));
    assert_eq!(roster.join(&rack, self::secret(), key(2), at(3600)), Err(NotJoined::WrongSecret));
    assert_eq!(roster, spent, "nothing of that counts");
    let refused = roster.invite(&rack, self::secret(), at(0)).unwrap_err();
    assert_eq!(refused.code, Code::BadRequest);
    assert!(refused.message.contains("has a key already"), "{refused}");
}

#[test]
fn an_invitation_ends_after_its_hour_or_five_wrong_secrets_or_with_the_next_one() {
    let mut roster = Roster::default();
    let (rack, right) = (name("rack-3"), secret());
    assert_eq!(roster.invite(&rack, right, at(0)).unwrap(), at(3600));
    assert_eq!(roster.join(&rack, right, key(1), at(3600)), Err(NotJoined::Expired));
    roster.invite(&rack, right, at(3600)).unwrap();
    for _ in 0..WRONG_SECRETS_MAX {
        assert_eq!(roster.join(&rack, secret(), key(1), at(3601)), Err(NotJoined::WrongSecret));
    }
    assert_eq!(roster.join(&rack, right, key(1), at(3601)), Err(NotJoined::Ended));
    let (former, later) = (secret(), secret());
    roster.invite(&rack, former, at(3602)).unwrap();
    roster.invite(&rack, later, at(3603)).unwrap();
    assert_eq!(roster.join(&rack, former, key(1), at(3604)), Err(NotJoined::WrongSecret));
    roster.join(&rack, later, key(1), at(3605)).unwrap();
}

#[test]
fn a_name_that_got_a_key_while_it_was_invited_is_not_given_another() {
    let mut roster = Roster::default();
    let (rack, secret) = (name("rack-1"), secret());
    roster.configure([&rack].into_iter()).unwrap();
    roster.invite(&rack, secret, at(0)).unwrap();
    roster.admit(&rack, key(1)).unwrap();
    assert_eq!(roster.join(&rack, secret, key(2), at(1)), Err(NotJoined::NameHasKey));
    roster.join(&rack, secret, key(1), at(1)).unwrap();
}

#[test]
fn a_lab_has_so_many_workers_and_no_more_invited_ones_included() {
    let mut roster = Roster::default();
    let names: Vec<NodeName> = (0..WORKERS_MAX - 1).map(|number| name(&format!("rack-{number}"))).collect();
    roster.configure(names.iter()).unwrap();
    roster.invite(&name("last"), secret(), at(0)).unwrap();
    roster.invite(&name("last"), secret(), at(1)).unwrap();
    assert_eq!(roster.invite(&name("one-more"), secret(), at(2)).unwrap_err().code, Code::QueueFull);
    roster.invite(&names[0], secret(), at(2)).unwrap();
    roster.invite(&name("one-more"), secret(), at(3601)).expect("the other has expired");
    assert_eq!(roster.configure([&name("a"), &name("b")].into_iter()), Err(WORKERS_MAX + 1));
}

#[test]
fn the_file_is_read_back_private_and_strict() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let file = RosterFile::under(directory.path());
    assert_eq!(file.read().unwrap(), Roster::default());
    let mut roster = Roster::default();
    roster.configure([&name("rack-1"), &name("rack-2")].into_iter()).unwrap();
    roster.admit(&name("rack-1"), key(1)).unwrap();
    roster.drain(&name("rack-1"), true).unwrap();
    roster.remove(&name("rack-2"), true).unwrap();
    roster.invite(&name("rack-3"), secret(), at(0)).unwrap();
    let _ = roster.join(&name("rack-3"), secret(), key(3), at(1));
    file.write(&roster).unwrap();
    assert_eq!(file.read().unwrap(), roster);
    let path = directory.path().join("roster.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    for damaged in ["{", &text.replace("drained", "dry"), &text.replace("\"version\": 1", "\"version\": 2"), ""] {
        std::fs::write(&path, damaged).unwrap();
        let why = file.read().unwrap_err().to_string();
        assert!(why.contains("roster.json: "), "{why}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Invite(u8),
    /// A name, which of the secrets made so far for it (the last is 0), a key.
    Join(u8, u8, u8),
    Knock(u8, u8),
    Remove(u8, bool),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let (name, key) = (0..3u8, 0..4u8);
    prop_oneof![
        name.clone().prop_map(Step::Invite),
        (name.clone(), 0..3u8, key.clone()).prop_map(|(name, secret, key)| Step::Join(name, secret, key)),
        (name.clone(), key).prop_map(|(name, key)| Step::Knock(name, key)),
        (name, any::<bool>()).prop_map(|(name, revoke)| Step::Remove(name, revoke)),
        (0..2000u16).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The model knows only which key was let in under which name, which are revoked, and when the last secret was made.
    #[test]
    fn whatever_happens_a_name_has_one_key_and_a_revoked_key_stays_out(steps in prop::collection::vec(step(), 1..80)) {
        let mut roster = Roster::default();
        let mut keys: BTreeMap<u8, u8> = BTreeMap::new();
        let mut revoked = BTreeSet::new();
        let mut secrets: BTreeMap<u8, Vec<(SecretHash, i64)>> = BTreeMap::new();
        let mut wrong: BTreeMap<u8, u8> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Pass(seconds) => now += i64::from(seconds),
                Step::Invite(who) => {
                    let hash = secret();
                    let invited = roster.invite(&name(&format!("w{who}")), hash, at(now));
                    prop_assert_eq!(invited.is_ok(), !keys.contains_key(&who));
                    if invited.is_ok() {
                        secrets.entry(who).or_default().insert(0, (hash, now));
                        wrong.insert(who, 0);
                    }
                }
                Step::Join(who, which, with) => {
                    let made = secrets.get(&who).and_then(|made| made.get(usize::from(which))).copied();
                    let Some((hash, made_at)) = made else { continue };
                    let joined = roster.join(&name(&format!("w{who}")), hash, key(with), at(now));
                    let open = wrong.get(&who).is_some_and(|wrong| *wrong < WRONG_SECRETS_MAX);
                    let fresh = !keys.contains_key(&who) && open && now < made_at + 3600;
                    let again = keys.get(&who) == Some(&with);
                    let may = which == 0 && wrong.contains_key(&who) && !revoked.contains(&with) && (fresh || again);
                    prop_assert_eq!(joined.is_ok(), may, "{:?}", joined);
                    if joined.is_ok() {
                        keys.insert(who, with);
                    } else if which != 0 && !keys.contains_key(&who)
                        && let Some(wrong) = wrong.get_mut(&who)
                    {
                        *wrong = wrong.saturating_add(1);
                    }
                }
                Step::Knock(who, with) => {
                    let let_in = roster.admit(&name(&format!("w{who}")), key(with)).is_ok();
                    prop_assert_eq!(let_in, keys.get(&who) == Some(&with) && !revoked.contains(&with));
                }
                Step::Remove(who, revoke) => {
                    let removed = roster.remove(&name(&format!("w{who}")), revoke).is_ok();
                    prop_assert_eq!(removed, keys.contains_key(&who));
                    if let Some(had) = keys.remove(&who) {
                        wrong.remove(&who);
                        if revoke {
                            revoked.insert(had);
                        }
                    }
                }
            }
        }
    }
}
