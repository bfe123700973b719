//! What each frame looks like.

use super::*;

macro_rules! assert_frames {
    ($frames:expr, @$expected:literal) => {
        let frames: Vec<String> = $frames.iter().map(|frame| shown(&bytes(frame))).collect();
        insta::assert_snapshot!(frames.join("\n"), @$expected);
    };
}

#[test]
fn hello_and_welcome_never_change() {
    assert_frames!([hello()], @"
    ‹84 a8›protocol‹82 a3›min‹02 a3›max‹03 a7›version‹a5›0.1.0‹a3›run‹c4106b1f0d3e31a64b0c8a410e6b3c6f7a10›
      ‹ab›incarnation‹cf0000019b76daa800›
    ");
    assert_frames!(welcomes(), @"
    ‹81 a8›accepted‹83 a8›protocol‹02 a7›drained‹c3 ab›eventsAfter‹cf0000019b76daa807›
    ‹81 ac›incompatible‹81 a8›protocol‹82 a3›min‹02 a3›max‹03›
    ‹81 a7›refused‹81 a3›why‹b1›not on the roster
    ");
}

#[test]
fn snapshots_and_deltas_are_what_the_peers_of_today_read() {
    assert_frames!(parts(), @"
    ‹81 a5›begin‹82 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012c›
    ‹81 a5›chunk‹82 a6›layout‹01 a9›resources‹91 8a a2›id‹a9›pixel-8-a‹a6›labels‹82 a2›os‹a2›15‹a8›platform
      ‹a7›android‹a9›maxShared‹02 a5›fence‹cf0000019b76daa800 a9›grantable‹c3 a7›drained‹c2 ab›queueLength‹00›
      ‹a8›reserved‹01 aa›nextWindow‹83 a6›holder‹b4›gw:gateway:ci/job-17‹aa›startsInMs‹00 a8›endsInMs‹cdea60›
      ‹a6›leases‹92 9d a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive
      ‹b4›gw:gateway:ci/job-17‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800›
      ‹a7›nightly‹c3 a3›k-1‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1‹9d a5›lse_1
      ‹d928›req_00000000-0000-7000-8000-000000000002‹a6›shared‹a9›ci/job-17‹cf0006474846204000›
      ‹cf0006474846204000 cdea60 00 01 c0 c2 c0 d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1
    ‹81 a8›requests‹82 a7›waiting‹91 89 a7›request‹d928›req_00000000-0000-7000-8000-000000000003‹a9›requester
      ‹b4›gw:gateway:ci/job-17‹a8›resource‹a9›pixel-8-a‹a4›mode‹a9›exclusive‹a8›attended‹c3 a7›leaseId
      ‹a7›ad-7f3a‹a3›key‹a3›k-1‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹a8›joinedAt
      ‹cf0006474846204000 a7›settled‹93 87 a7›request‹d928›req_00000000-0000-7000-8000-000000000004
      ‹a9›requester‹b4›gw:gateway:ci/job-17‹a3›key‹c0 ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d
      ‹a9›createdAt‹cf0006474846204000 aa›endedMsAgo‹cd012c a7›outcome‹81 a7›granted‹85 a8›resource
      ‹a9›pixel-8-a‹a5›lease‹9d a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive
      ‹b4›gw:gateway:ci/job-17‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800›
      ‹a7›nightly‹c3 a3›k-1‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1‹a9›expiresAt‹cf0006474849b3c700 a6›labels
      ‹81 a2›os‹a2›15‹ab›environment‹81 ae›ANDROID_SERIAL‹ad›emulator-5554‹87 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000004‹a9›requester‹b4›gw:gateway:ci/job-17‹a3›key‹c0›
      ‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹a9›createdAt‹cf0006474846204000 aa›endedMsAgo
      ‹cd012c a7›outcome‹81 a6›failed‹82 a4›code‹ad›DEVICE_FAILED‹a7›message‹ae›not made ready‹87 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000004‹a9›requester‹b4›gw:gateway:ci/job-17‹a3›key‹c0›
      ‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹a9›createdAt‹cf0006474846204000 aa›endedMsAgo
      ‹cd012c a7›outcome‹a9›cancelled
    ‹81 a3›end‹83 a9›resources‹01 a7›waiting‹01 a7›settled‹03›
    ");
    assert_frames!(reports(), @"
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 a8›resource‹8a a2›id
      ‹a9›pixel-8-a‹a6›labels‹82 a2›os‹a2›15‹a8›platform‹a7›android‹a9›maxShared‹02 a5›fence‹cf0000019b76daa800›
      ‹a9›grantable‹c2 a7›drained‹c2 ab›queueLength‹00 a8›reserved‹01 aa›nextWindow‹c0 a6›leases‹90›
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 a8›resource‹8e a2›id
      ‹a9›pixel-8-a‹a6›labels‹82 a2›os‹a2›15‹a8›platform‹a7›android‹a9›maxShared‹02 a5›fence‹cf0000019b76daa800›
      ‹a9›grantable‹c3 a7›drained‹c2 ab›queueLength‹00 a8›reserved‹01 aa›nextWindow‹c0 a6›device‹84 a5›state
      ‹a9›preparing‹a6›reason‹bd›made ready for its next lease‹a8›endsInMs‹cdea60 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000001‹ab›environment‹81 ae›ANDROID_SERIAL‹ad›emulator-5554
      ‹a8›identity‹82 a6›driver‹a3›adb‹a6›serial‹ad›emulator-5554‹aa›preparedMs‹cdee48 a6›leases‹90›
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 a7›waiting‹89 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000003‹a9›requester‹b4›gw:gateway:ci/job-17‹a8›resource
      ‹a9›pixel-8-a‹a4›mode‹a9›exclusive‹a8›attended‹c3 a7›leaseId‹a7›ad-7f3a‹a3›key‹a3›k-1‹ab›fingerprint
      ‹d920›6280181be0b12554bfca6b9047b1bb7d‹a8›joinedAt‹cf0006474846204000›
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 a7›settled‹87 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000004‹a9›requester‹b4›gw:gateway:ci/job-17‹a3›key‹c0›
      ‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹a9›createdAt‹cf0006474846204000 aa›endedMsAgo
      ‹cd012c a7›outcome‹a9›cancelled
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 a4›gone
      ‹d928›req_00000000-0000-7000-8000-000000000003
    ‹81 a5›delta‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›change‹81 ac›resourceGone
      ‹a9›pixel-8-a
    ‹81 a6›digest‹83 ab›incarnation‹cf0000019b76daa800 a6›number‹cd012d a6›digest‹cfffffffffffffffff›
    ‹81 a6›events‹81 a6›events‹91 86 a2›id‹d928›evt_00000000-0000-4000-8000-000000000009‹a3›seq
      ‹cf0000019b76daa801 a2›at‹cf0006474846204000 a5›event‹ad›lease.expired‹a5›owner‹b4›gw:gateway:ci/job-17
      ‹a7›payload‹82 a5›fence‹07 a7›leaseId‹a7›ad-7f3a
    ");
    assert_frames!(controls(), @"
    ‹81 a5›taken‹81 a6›number‹cd012c›
    ‹a6›resync
    ‹81 ab›eventsTaken‹81 a3›seq‹cf0000019b76daa801›
    ");
}

#[test]
fn calls_are_what_the_workers_of_today_read() {
    assert_frames!(calls().into_iter().map(|call| CallFrame { id: 7, call }).collect::<Vec<_>>(), @"
    ‹82 a2›id‹07 a4›call‹81 a8›dispatch‹de0011 a7›request‹d928›req_00000000-0000-7000-8000-000000000001
      ‹a7›attempt‹01 a4›door‹a7›acquire‹a9›requester‹b4›gw:gateway:ci/job-17‹a6›target‹81 a8›resource
      ‹a9›pixel-8-a‹a4›mode‹a9›exclusive‹a5›ttlMs‹cdea60 a7›leaseId‹a7›ad-7f3a‹a4›note‹a7›nightly‹a3›key‹a3›k-1
      ‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹ac›allowShorter‹c3 a5›admin‹c2 a8›priority
      ‹cb4016000000000000 a4›wait‹81 a8›attended‹81 a9›timeoutMs‹cdea60 a6›ticket‹a7›e30.e30‹a7›leftOut‹83›
      ‹a4›mode‹c3 a3›ttl‹c2 a8›priority‹c2›
    ‹82 a2›id‹07 a4›call‹81 a8›dispatch‹de0012 a7›request‹d928›req_00000000-0000-7000-8000-000000000001
      ‹a7›attempt‹01 a4›door‹a7›request‹a9›requester‹b4›gw:gateway:ci/job-17‹a6›target‹81 a6›select
      ‹b7›platform=android,os>=14‹a4›mode‹a6›shared‹a5›ttlMs‹cdea60 a7›leaseId‹c0 a4›note‹c0 a3›key‹c0›
      ‹ab›fingerprint‹d920›55c455b2845526bab21ec1557f27baaf‹ac›allowShorter‹c2 a5›admin‹c3 a8›priority
      ‹cb0000000000000000 a4›wait‹a5›never‹a6›ticket‹c0 a7›leftOut‹83 a4›mode‹c2 a3›ttl‹c2 a8›priority‹c2›
      ‹a5›notOn‹a9›pixel-8-b
    ‹82 a2›id‹07 a4›call‹81 a6›settle‹82 a7›request‹d928›req_00000000-0000-7000-8000-000000000001‹a7›attempt
      ‹02›
    ‹82 a2›id‹07 a4›call‹81 a5›renew‹85 a5›lease‹a7›ad-7f3a‹a5›fence‹05 a5›ttlMs‹cdea60 ac›allowShorter‹c3›
      ‹a5›admin‹c2›
    ‹82 a2›id‹07 a4›call‹81 a5›renew‹85 a5›lease‹a7›ad-7f3a‹a5›fence‹c0 a5›ttlMs‹c0 ac›allowShorter‹c2 a5›admin
      ‹c3›
    ‹82 a2›id‹07 a4›call‹81 a7›release‹82 a5›lease‹a7›ad-7f3a‹a5›fence‹05›
    ‹82 a2›id‹07 a4›call‹81 a8›dispatch‹de0011 a7›request‹d928›req_00000000-0000-7000-8000-000000000001
      ‹a7›attempt‹01 a4›door‹a7›acquire‹a9›requester‹b4›gw:gateway:ci/job-17‹a6›target‹81 a8›resource
      ‹a9›pixel-8-a‹a4›mode‹a9›exclusive‹a5›ttlMs‹cdea60 a7›leaseId‹a7›ad-7f3a‹a4›note‹a7›nightly‹a3›key‹a3›k-1
      ‹ab›fingerprint‹d920›6280181be0b12554bfca6b9047b1bb7d‹ac›allowShorter‹c3 a5›admin‹c2 a8›priority
      ‹cb4016000000000000 a4›wait‹aa›unattended‹a6›ticket‹a7›e30.e30‹a7›leftOut‹83 a4›mode‹c3 a3›ttl‹c2›
      ‹a8›priority‹c2›
    ‹82 a2›id‹07 a4›call‹81 a6›cancel‹81 a7›request‹d928›req_00000000-0000-7000-8000-000000000001
    ‹82 a2›id‹07 a4›call‹81 a4›look‹81 a7›request‹d928›req_00000000-0000-7000-8000-000000000001
    ‹82 a2›id‹07 a4›call‹81 a4›room‹81 a7›waiters‹82 a8›resource‹a9›pixel-8-a‹a5›after‹cd07d0›
    ‹82 a2›id‹07 a4›call‹81 a4›room‹81 a5›leave‹82 a8›resource‹a9›pixel-8-a‹a9›requester‹ad›gw:gateway:ci
    ‹82 a2›id‹07 a4›call‹81 a4›room‹81 a5›drain‹82 a8›resource‹a9›pixel-8-a‹a7›drained‹c3›
    ‹82 a2›id‹07 a4›call‹81 a4›room‹81 a5›clear‹81 a8›resource‹a9›pixel-8-a
    ‹82 a2›id‹07 a4›call‹81 ab›drainWorker‹81 a7›drained‹c2›
    ‹82 a2›id‹07 a4›call‹81 a9›elsewhere‹81 a9›resources‹81 a9›pixel-8-a‹a6›rack-2
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a4›book‹84 a8›resource‹a9›pixel-8-a‹a4›slot‹82 a8›startsAt‹cf0006474846204000 a6›length‹81›
      ‹a7›lasting‹cdea60 a6›repeat‹83 a5›every‹a4›week‹a5›until‹aa›2026-02-01‹a2›tz‹ad›Europe/Warsaw‹a4›note‹a1›n
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 aa›reschedule‹82 a7›booking‹d929›book_00000000-0000-4000-8000-000000000001‹a2›to‹82›
      ‹a8›startsAt‹cf0006474846204000 a6›length‹81 a5›until‹cf000647484b7d8a80›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a6›cancel‹82 a7›booking‹d929›book_00000000-0000-4000-8000-000000000001‹a9›following‹c3›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a7›booking‹d929›book_00000000-0000-4000-8000-000000000001
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a8›bookings‹83 a8›resource‹a9›pixel-8-a‹a6›filter‹85 a4›from‹cf0006474846204000 a2›to‹c0›
      ‹a6›status‹a9›scheduled‹a5›owner‹ad›gw:gateway:ci‹a5›after
      ‹d93a›1767225600000000-book_00000000-0000-4000-8000-000000000001‹a5›limit‹64›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a4›hold‹85 a8›resource‹a9›pixel-8-a‹a4›slot‹82 a8›startsAt‹cf0006474846204000 a6›length‹81›
      ‹a7›lasting‹cdea60 a5›ttlMs‹cdea60 a3›key‹a3›k-1‹a5›token‹dc0020 ccb7 1c cc84 ccfa cc8e 29 cca0 cc96›
      ‹cc90 ccdb ccc7 ccb6 1b 71 3d 18 ccc2 11 4e 51 0e 7f 5e ccc8 2c cca6 cc8c cce6 cced ccb6 ccb9 ccf0›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a7›confirm‹83 a4›hold‹d929›hold_00000000-0000-4000-8000-000000000002‹a5›token‹dc0020 ccb7 1c›
      ‹cc84 ccfa cc8e 29 cca0 cc96 cc90 ccdb ccc7 ccb6 1b 71 3d 18 ccc2 11 4e 51 0e 7f 5e ccc8 2c cca6›
      ‹cc8c cce6 cced ccb6 ccb9 ccf0 a4›note‹c0›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a7›release‹82 a4›hold‹d929›hold_00000000-0000-4000-8000-000000000002‹a5›token‹c0›
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a7›oneHold‹d929›hold_00000000-0000-4000-8000-000000000002
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 a5›holds‹a9›pixel-8-a
    ‹82 a2›id‹07 a4›call‹81 a8›calendar‹82 a5›asker‹82 a9›requester‹b4›gw:gateway:ci/job-17‹a4›role‹a5›agent
      ‹a3›ask‹81 aa›pauseHolds‹82 a8›resource‹c0 a6›paused‹c3›
    ");
}

#[test]
fn answers_are_what_the_gateways_of_today_read() {
    let framed = |answer| AnswerFrame { id: 300, number: 70_000, answer };
    assert_frames!(answers().into_iter().map(framed).collect::<Vec<_>>(), @"
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›granted‹82 a8›resource‹a9›pixel-8-a‹a5›lease‹9d›
      ‹a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive‹b4›gw:gateway:ci/job-17
      ‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800 a7›nightly‹c3 a3›k-1
      ‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›granted‹84 a8›resource‹a9›pixel-8-a‹a5›lease‹9d›
      ‹a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive‹b4›gw:gateway:ci/job-17
      ‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800 a7›nightly‹c3 a3›k-1
      ‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1‹a8›workedMs‹cdee48 ab›environment‹81 ae›ANDROID_SERIAL
      ‹ad›emulator-5554
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›settled‹82 a8›resource‹a9›pixel-8-a‹a5›lease‹9d›
      ‹a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive‹b4›gw:gateway:ci/job-17
      ‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800 a7›nightly‹c3 a3›k-1
      ‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›settled‹c0›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›renewed‹82 a8›resource‹a9›pixel-8-a‹a5›lease‹9d›
      ‹a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive‹b4›gw:gateway:ci/job-17
      ‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800 a7›nightly‹c3 a3›k-1
      ‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›renewed‹83 a8›resource‹a9›pixel-8-a‹a5›lease‹9d›
      ‹a7›ad-7f3a‹d928›req_00000000-0000-7000-8000-000000000001‹a9›exclusive‹b4›gw:gateway:ci/job-17
      ‹cf0006474846204000 cf0006474846204000 cdea60 cde678 cf0000019b76daa800 a7›nightly‹c3 a3›k-1
      ‹d920›9a4a7c2c3cce7a3b3db44cc1c324c6b1‹a7›notices‹91 83 a2›at‹bb›2026-01-01T00:00:00.000000Z‹a5›event
      ‹b0›device_unhealthy‹a7›message‹b4›health exited with 1
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›released‹81 a8›admitted‹b4›gw:gateway:ci/job-18
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›waiting‹87 a7›request
      ‹d928›req_00000000-0000-7000-8000-000000000003‹a8›resource‹a9›pixel-8-a‹a4›mode‹a9›exclusive‹a8›position
      ‹02 aa›waitingFor‹a6›leased‹a7›untilMs‹cdea60 a6›ticket‹a7›e30.e30
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹a9›cancelled
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a4›room‹81 a7›waiters‹82 a7›waiters‹91 85 a6›holder‹a2›ci
      ‹a8›joinedAt‹cf0006474846204000 a8›lastSeen‹cf0006474849b3c700 a4›mode‹a6›shared‹a8›priority
      ‹cb3ff0000000000000 a4›more‹c3›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a4›room‹81 a4›left‹c3›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a4›room‹81 a8›resource‹8a a2›id‹a9›pixel-8-a‹a6›labels‹82›
      ‹a2›os‹a2›15‹a8›platform‹a7›android‹a9›maxShared‹02 a5›fence‹cf0000019b76daa800 a9›grantable‹c3 a7›drained
      ‹c2 ab›queueLength‹00 a8›reserved‹01 aa›nextWindow‹c0 a6›leases‹90›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›drained‹c3›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹a9›elsewhere
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›refused‹83 a4›code‹ad›DEVICE_FAILED‹a7›message
      ‹d921›pixel-8-a could not be made ready‹a7›details‹81 aa›resourceId‹a9›pixel-8-a
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›refused‹83 a4›code‹ae›LEASE_ID_TAKEN‹a7›message
      ‹d922›lease ID ad-7f3a is already in use‹a7›details‹81 a7›leaseId‹a7›ad-7f3a
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a7›refused‹83 a4›code‹aa›QUEUE_FULL‹a7›message
      ‹a9›ask again‹aa›retryAfter‹01›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a6›booked‹82 a6›series
      ‹d92b›series_00000000-0000-4000-8000-000000000003‹a8›bookings‹92 8b a2›id
      ‹d929›book_00000000-0000-4000-8000-000000000001‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a9›fulfilled
      ‹a6›claims‹c3 a4›note‹a1›n‹a7›leaseId‹a5›lse_1‹a6›series‹d92b›series_00000000-0000-4000-8000-000000000003
      ‹a9›createdAt‹cf0006474846204000 a9›settledAt‹cf00064748462f8240 8b a2›id
      ‹d929›book_00000000-0000-4000-8000-000000000001‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a9›fulfilled
      ‹a6›claims‹c3 a4›note‹c0 a7›leaseId‹a5›lse_1‹a6›series‹d92b›series_00000000-0000-4000-8000-000000000003
      ‹a9›createdAt‹cf0006474846204000 a9›settledAt‹cf00064748462f8240›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a7›booking‹8b a2›id
      ‹d929›book_00000000-0000-4000-8000-000000000001‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a9›fulfilled
      ‹a6›claims‹c3 a4›note‹a1›n‹a7›leaseId‹a5›lse_1‹a6›series‹d92b›series_00000000-0000-4000-8000-000000000003
      ‹a9›createdAt‹cf0006474846204000 a9›settledAt‹cf00064748462f8240›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a9›cancelled‹82 a7›booking‹8b a2›id
      ‹d929›book_00000000-0000-4000-8000-000000000001‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a9›fulfilled
      ‹a6›claims‹c3 a4›note‹a1›n‹a7›leaseId‹a5›lse_1‹a6›series‹d92b›series_00000000-0000-4000-8000-000000000003
      ‹a9›createdAt‹cf0006474846204000 a9›settledAt‹cf00064748462f8240 a9›following‹90›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a8›bookings‹82 a8›bookings‹90 a4›next
      ‹d93a›1767225600000000-book_00000000-0000-4000-8000-000000000001
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a4›hold‹87 a2›id
      ‹d929›hold_00000000-0000-4000-8000-000000000002‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a6›active
      ‹a9›expiresAt‹cf0006474869e38600 a7›booking‹c0›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a5›holds‹91 87 a2›id
      ‹d929›hold_00000000-0000-4000-8000-000000000002‹aa›resourceId‹a9›pixel-8-a‹a6›holder
      ‹b4›gw:gateway:ci/job-17‹a6›window‹92 cf0006474846204000 cf0006474849b3c700 a6›status‹a6›active
      ‹a9›expiresAt‹cf0006474869e38600 a7›booking‹c0›
    ‹83 a2›id‹cd012c a6›number‹ce00011170 a6›answer‹81 a8›calendar‹81 a6›paused‹c3›
    ");
}

#[test]
fn every_frame_reads_back_as_it_was_written() {
    for (kind, frame) in every_frame() {
        assert_eq!(kind.read(&frame).unwrap(), frame, "{kind:?} {}", shown(&frame));
    }
}

#[test]
fn tools_are_what_the_peers_of_today_read() {
    assert_frames!([exec::opening()], @"
    ‹81 a4›exec‹85 a9›requester‹b4›gw:gateway:ci/job-17‹a5›lease‹a7›ad-7f3a‹a5›fence‹cf0000019b76daa800 a4›tool
      ‹a3›adb‹a4›args‹92 a5›shell‹a7›echo ü
    ");
    assert_frames!(exec::opened(), @"
    ‹a7›started
    ‹81 a7›refused‹82 a4›code‹ab›BAD_REQUEST‹a7›message‹ac›no such tool
    ");
    assert_frames!(exec::to_tool(), @"
    ‹81 a5›stdin‹c40300696e›
    ‹a3›eof
    ‹81 a6›signal‹a3›INT
    ‹81 a3›ack‹ce00010000›
    ");
    assert_frames!(exec::from_tool(), @"
    ‹81 a6›stdout‹c4036f7574›
    ‹81 a6›stderr‹c400›
    ‹81 a3›ack‹01›
    ‹81 a4›exit‹cc89›
    ‹81 a6›failed‹82 a4›code‹ac›EXEC_TIMEOUT‹a7›message‹b0›it took too long
    ");
}
