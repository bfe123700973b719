//! What a command finds in its environment beside what `berth exec` found in its own.

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::service::views::LeaseView;

/// The lease's environment, and what says which lease it is. The latter wins.
///
/// # Errors
/// The node's answer holds what no environment can.
pub(super) fn of(lease: &LeaseView) -> anyhow::Result<BTreeMap<String, String>> {
    let mut set = lease.environment.clone();
    for (name, value) in &set {
        ensure!(is_name(name) && !value.contains('\0'), "the lease's environment has {name:?}, which is no variable");
    }
    set.extend([
        ("BERTH_LEASE".to_owned(), lease.id.to_string()),
        ("BERTH_RESOURCE".to_owned(), lease.resource_id.to_string()),
        ("BERTH_FENCE".to_owned(), lease.fence.to_string()),
        ("BERTH_HOLDER".to_owned(), lease.holder_id.to_string()),
    ]);
    Ok(set)
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(good) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake;

    fn lease(name: &str, value: &str) -> LeaseView {
        let mut lease: LeaseView = serde_json::from_value(fake::lease("mine", "pixel-8-a")).unwrap();
        lease.environment.insert(name.to_owned(), value.to_owned());
        lease
    }

    #[test]
    fn a_command_hears_what_its_device_needs_and_which_lease_it_is() {
        let set = of(&lease("BERTH_LEASE", "another")).unwrap();
        assert_eq!((set["ANDROID_SERIAL"].as_str(), set["BERTH_LEASE"].as_str()), ("R5", "mine"));
        assert_eq!((set["BERTH_RESOURCE"].as_str(), set["BERTH_FENCE"].as_str()), ("pixel-8-a", "1767225600000"));
        assert!(set.contains_key("BERTH_HOLDER"));
    }

    #[test]
    fn what_is_no_variable_is_not_handed_on() {
        for (name, value) in [("", "x"), ("A=B", "x"), ("1A", "x"), ("A B", "x"), ("A\0", "x"), ("A", "x\0y")] {
            assert!(of(&lease(name, value)).is_err(), "{name:?} {value:?}");
        }
    }
}
