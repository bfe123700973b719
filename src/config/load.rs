//! Reading a lab file and the variables over it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::reader::Reader;
use super::section::{Document, Variables, advice, join};
use super::{ConfigError, Effective, Origin};

/// Where the lab file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Inside the program: `config/lab.toml`.
    Embedded,
    /// On disk.
    File(PathBuf),
}

const EMBEDDED: &str = include_str!("../../config/lab.toml");
/// Far above what 100 000 resources take; a larger file is no lab file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub(super) const TOP: &[&str] = &[
    "lab",
    "gateway",
    "pki",
    "api",
    "lease",
    "waiting_room",
    "bookings",
    "holds",
    "events",
    "limits",
    "exec",
    "worker",
];
/// The sections that variables reach, and their keys.
pub(super) const PLAIN: &[(&str, &[&str])] = &[
    ("lab", &["name", "state_dir"]),
    ("gateway", &["name", "api", "link", "address", "rebuild_wait", "absence_grace"]),
    ("pki", &["ca", "cert", "key", "ca_key"]),
    ("api", &["insecure"]),
    (
        "lease",
        &[
            "default_ttl",
            "max_ttl",
            "max_total",
            "max_per_requester",
            "request_retention",
            "uplink_grace",
            "lock_delay",
        ],
    ),
    ("waiting_room", &["waiter_ttl", "admission_grace", "priority_aging", "return_grace"]),
    ("bookings", &["mode", "auto_acquire", "max_duration", "horizon", "no_show_after"]),
    ("holds", &["enabled", "default_ttl", "max_ttl", "check_interval"]),
    ("events", &["retention", "max_count"]),
    ("limits", &["waiters", "bookings", "bookings_per_principal", "holds_per_principal"]),
    ("exec", &["timeout", "allow"]),
];

/// The variables of this process, for [`Effective::load`]. Bytes that are not UTF-8 are replaced, so that a variable
/// of Berth with such bytes is refused by its key and others do no harm.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

impl Effective {
    /// Reads the lab file and the variables of `env` over it. Opens and makes nothing else.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(source: Source, env: impl Iterator<Item = (String, String)>) -> Result<Effective, ConfigError> {
        let text = match &source {
            Source::Embedded => EMBEDDED.to_owned(),
            Source::File(path) => read(path)?,
        };
        let env: BTreeMap<String, String> = env.collect();
        let document = Document { source: &source, text: &text };
        let table = DeTable::parse(&text).map_err(|error| ConfigError::Syntax {
            at: document.at(error.span().map_or(0, |span| span.start)),
            why: error.message().replace('\n', ", "),
        })?;
        let variables = variables(&env)?;
        let mut reader = Reader::new(document, &variables, &env);
        let lab = reader.lab(table.get_ref())?;
        Ok(Effective { lab, values: reader.into_values() })
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    Ok(text)
}

/// The variables `BERTH_<SECTION>__<KEY>`, by section.
fn variables(env: &BTreeMap<String, String>) -> Result<BTreeMap<String, Variables>, ConfigError> {
    let sections: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
    let mut found: BTreeMap<String, Variables> = BTreeMap::new();
    for (name, value) in env {
        let Some((section, key)) = name.strip_prefix("BERTH_").and_then(|rest| rest.split_once("__")) else {
            continue;
        };
        let (section, key) = (section.to_lowercase(), key.to_lowercase());
        if !sections.contains(&section.as_str()) {
            let advice = match section.as_str() {
                "worker" => "workers are set in the lab file only".to_owned(),
                _ => advice("", &section, &sections).replace("the file takes", "variables reach the sections"),
            };
            let at = Origin::Environment(name.clone());
            return Err(ConfigError::UnknownKey { at, key: join(&section, &key), advice });
        }
        found.entry(section).or_default().insert(key, (name.clone(), value.clone()));
    }
    Ok(found)
}
