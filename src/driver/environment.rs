//! What hooks and tools find in their environment of the resource and its lease (SPEC §7).

use std::collections::BTreeMap;

use crate::model::{Fence, Labels, LeaseId, Requester, ResourceId};

const RESOURCE: &str = "BERTH_RESOURCE";
const LEASE: &str = "BERTH_LEASE";
const HOLDER: &str = "BERTH_HOLDER";
const FENCE: &str = "BERTH_FENCE";
const LABEL: &str = "BERTH_LABEL_";

/// Whose lease a hook is about, as far as there is one: a check of a free device has none, and one that is prepared has no
/// fence yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tenure<'a> {
    /// `BERTH_LEASE`.
    pub lease: Option<&'a LeaseId>,
    /// `BERTH_HOLDER`.
    pub holder: Option<&'a Requester>,
    /// `BERTH_FENCE`.
    pub fence: Option<Fence>,
}

/// The variables `BERTH_RESOURCE`, `BERTH_LEASE`, `BERTH_HOLDER`, `BERTH_FENCE`, and `BERTH_LABEL_…` for each label (SPEC §7).
///
/// The name of a label's variable is its key in upper case with `_` for everything but letters and digits: `os.version`
/// becomes `BERTH_LABEL_OS_VERSION`. Where two keys give the same name, the last in the order of the keys counts. That is the
/// one spelled with `_`, if there is one, and one with `.` goes before one with `-`.
pub fn environment(resource: &ResourceId, labels: &Labels, tenure: Tenure<'_>) -> BTreeMap<String, String> {
    let label = |key: &str| {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        LABEL.chars().chain(key.chars().map(plain)).collect::<String>()
    };
    let mut found: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| (label(key.as_str()), value.to_string())).collect();
    found.insert(RESOURCE.to_owned(), resource.to_string());
    let optional = [
        (LEASE, tenure.lease.map(ToString::to_string)),
        (HOLDER, tenure.holder.map(ToString::to_string)),
        (FENCE, tenure.fence.map(|fence| fence.to_string())),
    ];
    found.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    found
}

/// True for a variable that tells of a resource or its lease. A node that was itself started for a lease does not hand its own
/// on.
pub(super) fn is_of_a_lease(name: &str) -> bool {
    [RESOURCE, LEASE, HOLDER, FENCE].contains(&name) || name.starts_with(LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Principal, SubName};

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn shown(found: &BTreeMap<String, String>) -> Vec<String> {
        found.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_hook_of_a_lease_sees_all_of_it() {
        let lease: LeaseId = "lse_0192d6c8-7c1e-7a30-b5b1-1f2e3d4c5b6a".parse().unwrap();
        let principal: Principal = "ci".parse().unwrap();
        let sub: SubName = "job-7".parse().unwrap();
        let holder = Requester::local(principal, Some(sub));
        let tenure = Tenure { lease: Some(&lease), holder: Some(&holder), fence: Some(Fence(12)) };
        let labels = labels(&[("platform", "android"), ("os.patch-level", "2026 08")]);
        let found = environment(&"pixel-a".parse().unwrap(), &labels, tenure);
        let expected = [
            "BERTH_FENCE=12".to_owned(),
            "BERTH_HOLDER=ci/job-7".to_owned(),
            "BERTH_LABEL_OS_PATCH_LEVEL=2026 08".to_owned(),
            "BERTH_LABEL_PLATFORM=android".to_owned(),
            format!("BERTH_LEASE={lease}"),
            "BERTH_RESOURCE=pixel-a".to_owned(),
        ];
        assert_eq!(shown(&found), expected);
        assert!(found.keys().all(|name| is_of_a_lease(name)));
        assert!(!is_of_a_lease("BERTH_URL"));
    }

    #[test]
    fn a_check_of_a_free_device_sees_no_lease() {
        let found = environment(&"pixel-a".parse().unwrap(), &Labels::new(), Tenure::default());
        assert_eq!(shown(&found), ["BERTH_RESOURCE=pixel-a"]);
    }

    #[test]
    fn of_labels_with_the_same_variable_the_one_that_is_spelled_like_it_counts() {
        let resource = "pixel-a".parse().unwrap();
        let all = labels(&[("os-v", "dash"), ("os.v", "dot"), ("os_v", "line")]);
        assert_eq!(environment(&resource, &all, Tenure::default())["BERTH_LABEL_OS_V"], "line");
        let two = labels(&[("os-v", "dash"), ("os.v", "dot")]);
        assert_eq!(environment(&resource, &two, Tenure::default())["BERTH_LABEL_OS_V"], "dot");
    }
}
