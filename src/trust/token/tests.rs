use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn name(text: &str) -> Principal {
    text.parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn refused(error: TokenError) -> Refusal {
    match error {
        TokenError::Refused(refusal) => refusal,
        other => panic!("not a refusal: {other}"),
    }
}

#[test]
fn a_token_is_known_until_it_is_revoked_and_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    let (ci, secret) = tokens.create(name("ci"), Role::Agent, at(1)).unwrap();
    let (_, other) = tokens.create(name("wall"), Role::Viewer, at(2)).unwrap();
    assert!(secret.expose().starts_with("bth_"));
    let caller = Caller { principal: name("ci"), role: Role::Agent };
    assert_eq!(tokens.authenticate(secret.expose()), Some(caller.clone()));

    let again = Tokens::open(dir.path()).unwrap();
    assert_eq!(again.authenticate(secret.expose()), Some(caller));
    assert_eq!(again.list(), tokens.list());

    let ended = again.revoke(&ci.id, at(5)).unwrap();
    assert_eq!(ended.revoked_at, Some(at(5)));
    assert_eq!(again.revoke(&ci.id, at(9)).unwrap().revoked_at, Some(at(5)), "the first end counts");
    assert_eq!(again.authenticate(secret.expose()), None);
    let third = Tokens::open(dir.path()).unwrap();
    assert_eq!(third.authenticate(secret.expose()), None);
    assert!(third.authenticate(other.expose()).is_some());
}

#[test]
fn a_name_is_never_used_twice_and_admin_never() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    let (ci, _) = tokens.create(name("ci"), Role::Agent, at(1)).unwrap();
    tokens.revoke(&ci.id, at(2)).unwrap();
    for taken in ["ci", "admin"] {
        let refusal = refused(tokens.create(name(taken), Role::Agent, at(3)).unwrap_err());
        assert_eq!(refusal.code, Code::BadRequest, "{taken}");
        assert_eq!(refusal.details.unwrap()["field"], "name");
    }
    let unknown = refused(tokens.revoke(&TokenId::generate(), at(3)).unwrap_err());
    assert_eq!(unknown.code, Code::UnknownToken);
}

#[test]
fn the_admin_token_is_made_once_and_speaks_for_the_operator() {
    let dir = tempfile::tempdir().unwrap();
    let first = admin_token(dir.path()).unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    assert_eq!(tokens.authenticate(first.expose()), Some(Caller::admin()));
    let text = fs::read_to_string(dir.path().join(ADMIN_TOKEN_FILE)).unwrap();
    assert_eq!(text, format!("{}\n", first.expose()));
    assert!(tokens.list().is_empty());
}

#[test]
fn what_is_no_secret_authenticates_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    let (_, secret) = tokens.create(name("ci"), Role::Agent, at(1)).unwrap();
    let upper = secret.expose().to_uppercase();
    let hash = String::from(SecretHash::of(secret.expose()));
    for text in ["", "bth_", upper.as_str(), hash.as_str(), &secret.expose()[..60]] {
        assert_eq!(tokens.authenticate(text), None, "{text}");
    }
}

#[test]
fn the_files_are_private_and_hold_no_secret_of_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    let (_, secret) = tokens.create(name("ci"), Role::Agent, at(1)).unwrap();
    let path = dir.path().join("tokens.json");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&dir.path().join(ADMIN_TOKEN_FILE)), 0o600);
    assert!(!fs::read_to_string(&path).unwrap().contains(secret.expose()));
    assert!(!format!("{secret:?} {tokens:?}").contains(&secret.expose()[4..]));
}

#[test]
fn an_admin_token_that_others_can_read_is_refused_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    admin_token(dir.path()).unwrap();
    let path = dir.path().join(ADMIN_TOKEN_FILE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = Tokens::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("admin.token") && error.contains("chmod 600"), "{error}");
}

#[test]
fn a_damaged_file_is_named_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    admin_token(dir.path()).unwrap();
    let path = dir.path().join("tokens.json");
    let entry = r#"{"id":"tok_0198f3a0-0000-7000-8000-000000000000","name":"admin","role":"admin","createdAt":"2026-01-01T00:00:00Z","sha256":"00"}"#;
    let admin =
        format!(r#"{{"version":1,"tokens":[{}]}}"#, entry.replace("\"00\"", &format!("\"{}\"", "0".repeat(64))));
    for text in ["", "{", r#"{"version":2,"tokens":[]}"#, &format!(r#"{{"version":1,"tokens":[{entry}]}}"#), &admin] {
        file::write_private(&path, text.as_bytes()).unwrap();
        let error = Tokens::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("tokens.json is damaged"), "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_change_that_the_disk_refuses_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::open(dir.path()).unwrap();
    let (ci, secret) = tokens.create(name("ci"), Role::Agent, at(1)).unwrap();
    // A directory where the new file would be written: not even root can write it.
    fs::create_dir(dir.path().join("tokens.json.new")).unwrap();
    assert!(matches!(tokens.create(name("b"), Role::Agent, at(2)), Err(TokenError::File { .. })));
    assert!(matches!(tokens.revoke(&ci.id, at(2)), Err(TokenError::File { .. })));
    assert!(tokens.authenticate(secret.expose()).is_some());
    assert_eq!(tokens.list().len(), 1);
    fs::remove_dir(dir.path().join("tokens.json.new")).unwrap();
    tokens.create(name("b"), Role::Agent, at(3)).unwrap();
}
