//! The tables of the file: which keys one may have, and taking them out one by one.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::given::{Given, Raw};
use super::{ConfigError, Origin, Source};

/// The text of a lab file, to turn an offset into a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'d> {
    pub source: &'d Source,
    pub text: &'d str,
}

impl Document<'_> {
    /// The place of the byte at `offset`.
    pub fn at(&self, offset: usize) -> Origin {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        match self.source {
            Source::Embedded => Origin::Embedded { line },
            Source::File(path) => Origin::File { path: path.clone(), line },
        }
    }
}

/// The variables that stand for the keys of one section: key to the variable's name and value.
pub(super) type Variables = BTreeMap<String, (String, String)>;

/// One table, whose keys are all known.
#[derive(Debug)]
pub(super) struct Section<'d> {
    path: String,
    /// Where the table begins, or the end of the file when there is none.
    at: Origin,
    given: BTreeMap<String, Given<'d>>,
}

impl<'d> Section<'d> {
    /// The keys of `table`, with those of `variables` in their place.
    pub fn open(
        document: Document<'d>,
        path: &str,
        at: Origin,
        table: Option<&'d DeTable<'d>>,
        variables: Option<&'d Variables>,
        known: &[&str],
    ) -> Result<Self, ConfigError> {
        // The first wrong key of the file is the one to hear about, and the table is sorted by name.
        let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'d>>)> = table.into_iter().flatten().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let written = entries.into_iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            (name, document.at(key.span().start), Raw::Toml(value.get_ref()))
        });
        let variables = (variables.into_iter().flatten())
            .map(|(key, (name, value))| (key.as_str(), Origin::Environment(name.clone()), Raw::Text(value.as_str())));
        let mut given = BTreeMap::new();
        for (name, origin, raw) in written.chain(variables) {
            let key = join(path, name);
            if !known.contains(&name) {
                return Err(ConfigError::UnknownKey { at: origin, key, advice: advice(path, name, known) });
            }
            given.insert(name.to_owned(), Given { key, origin, raw });
        }
        Ok(Self { path: path.to_owned(), at, given })
    }

    /// The full path of a key.
    pub fn key(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Takes a key, if it is given.
    pub fn take(&mut self, key: &str) -> Option<Given<'d>> {
        self.given.remove(key)
    }

    /// Takes a key that must be given.
    pub fn need(&mut self, key: &str, fix: &str) -> Result<Given<'d>, ConfigError> {
        self.take(key).ok_or_else(|| self.refuse(key, format!("is missing; {fix}")))
    }

    /// The refusal of a key that is not given.
    pub fn refuse(&self, key: &str, why: String) -> ConfigError {
        ConfigError::Value { at: self.at.clone(), key: self.key(key), why }
    }
}

/// `path.key`, the key in quotes where TOML needs them.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let key = if bare { key.to_owned() } else { format!("{:?}", key.chars().take(80).collect::<String>()) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The nearest right name if one is near, else all of them.
pub(super) fn advice(path: &str, wrong: &str, known: &[&str]) -> String {
    // A megabyte is near to nothing, and the comparison is quadratic.
    let wrong: String = wrong.chars().take(80).collect();
    let nearest = known
        .iter()
        .map(|right| (strsim::damerau_levenshtein(right, &wrong), right))
        .filter(|(distance, right)| *distance <= right.len().max(wrong.len()) / 3)
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((_, right)) => format!("did you mean {}?", join(path, right)),
        None if path.is_empty() => format!("the file takes {}", known.join(", ")),
        None => format!("{path} takes {}", known.join(", ")),
    }
}
