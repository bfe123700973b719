//! Selectors: a filter over labels (SPEC §1).
//!
//! Comma-separated terms, all must hold:
//!
//! | term | holds when |
//! |---|---|
//! | `k=v` | the label is `v` |
//! | `k!=v` | the label is missing or is not `v` |
//! | `k in (a,b)`, `k notin (a,b)` | the label is one of them; is missing or none of them |
//! | `k`, `!k` | the label is there; is missing |
//! | `k>=1.2`, `>`, `<=`, `<` | the label is a dotted number that compares so, part by part |
//!
//! A version that is written short covers every version it is a prefix of: `os<=14` includes 14.3, and `os>14`
//! does not. A value with a comma, a bracket or a quote in it is written `"in quotes"`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::label::{LabelKey, LabelValue, Labels};

/// A parsed selector: 1 to [`Selector::TERMS_MAX`] terms, in the order they were written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    terms: Vec<Term>,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    /// The label it asks about.
    pub key: LabelKey,
    /// What it asks.
    pub test: Test,
}

/// What a term asks about its label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Test {
    /// There.
    Present,
    /// Missing.
    Missing,
    /// Equal to one of these.
    In(Vec<LabelValue>),
    /// Missing, or equal to none of these.
    NotIn(Vec<LabelValue>),
    /// A dotted number that compares so.
    Compare(Comparison, Version),
}

/// How two versions compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
}

/// A dotted number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(Vec<u64>);

impl Version {
    /// 1 to 8 numbers with dots between them.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Option<Vec<u64>> = text
            .split('.')
            .map(|part| if part.bytes().all(|b| b.is_ascii_digit()) { part.parse().ok() } else { None })
            .collect();
        parts.filter(|parts| parts.len() <= 8).map(Self)
    }

    /// How `self` compares to `bound`, looking no further than the parts that `bound` has.
    fn within(&self, bound: &Version) -> std::cmp::Ordering {
        let shown = bound.0.iter().enumerate();
        shown
            .map(|(index, part)| self.0.get(index).unwrap_or(&0).cmp(part))
            .find(|o| o.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    }
}

impl Comparison {
    fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Comparison::AtLeast => ordering.is_ge(),
            Comparison::Above => ordering.is_gt(),
            Comparison::AtMost => ordering.is_le(),
            Comparison::Below => ordering.is_lt(),
        }
    }
}

impl Term {
    /// True when `labels` satisfy it.
    pub fn matches(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        match &self.test {
            Test::Present => label.is_some(),
            Test::Missing => label.is_none(),
            Test::In(values) => label.is_some_and(|label| values.contains(label)),
            Test::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            Test::Compare(comparison, bound) => label
                .and_then(|label| Version::parse(label.as_str()))
                .is_some_and(|version| comparison.holds(version.within(bound))),
        }
    }
}

impl Selector {
    /// The most terms one selector may have.
    pub const TERMS_MAX: usize = 32;
    /// The most values between one pair of brackets.
    pub const VALUES_MAX: usize = 64;
    /// The longest selector, in bytes.
    pub const BYTES_MAX: usize = 4096;

    /// From terms; none when there are none or too many.
    pub fn new(terms: Vec<Term>) -> Option<Self> {
        (1..=Self::TERMS_MAX).contains(&terms.len()).then_some(Self { terms })
    }

    /// True when every term holds.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| term.matches(labels))
    }

    /// One text for every way to write the same set of terms.
    pub fn canonical(&self) -> String {
        let mut terms: Vec<String> = self.terms.iter().map(Term::to_string).collect();
        terms.sort();
        terms.dedup();
        terms.join(",")
    }
}

/// What nearly matched a selector, for `NO_MATCHING_RESOURCE`.
#[derive(Debug, Default)]
pub struct Nearness {
    /// For each set of failed terms (as bits): how many resources failed just those, and a few of their values.
    misses: Vec<(u32, usize, Vec<String>)>,
    seen: usize,
}

impl Nearness {
    const VALUES_SHOWN: usize = 5;

    /// Takes note of a resource that does not match.
    pub fn add(&mut self, selector: &Selector, labels: &Labels) {
        self.seen += 1;
        let failed = selector.terms.iter().enumerate().filter(|(_, term)| !term.matches(labels));
        let bits = failed.fold(0u32, |bits, (index, _)| bits | 1 << index);
        let index = self.misses.iter().position(|(other, ..)| *other == bits).unwrap_or_else(|| {
            self.misses.push((bits, 0, Vec::new()));
            self.misses.len() - 1
        });
        let (_, count, values) = &mut self.misses[index];
        *count += 1;
        if values.len() < Self::VALUES_SHOWN {
            let term = &selector.terms[bits.trailing_zeros() as usize % selector.terms.len()];
            values.push(labels.get(&term.key).map_or("missing".to_owned(), LabelValue::to_string));
        }
    }

    /// In words: `2 match platform=android; their os is 13, 13`.
    pub fn describe(&self, selector: &Selector) -> String {
        let nearest = self.misses.iter().min_by_key(|(bits, count, _)| (bits.count_ones(), usize::MAX - count));
        let Some((bits, count, values)) = nearest else {
            return "there are no resources".to_owned();
        };
        let matched: Vec<String> = (selector.terms.iter().enumerate())
            .filter(|(index, _)| bits & (1 << index) == 0)
            .map(|(_, term)| term.to_string())
            .collect();
        let key = &selector.terms[bits.trailing_zeros() as usize % selector.terms.len()].key;
        let more = if *count > values.len() { ", …" } else { "" };
        let values = values.join(", ");
        if matched.is_empty() {
            format!("none of {} resources matches a term; their {key} is {values}{more}", self.seen)
        } else {
            let verb = if *count == 1 { "matches" } else { "match" };
            format!("{count} {verb} {}; their {key} is {values}{more}", matched.join(","))
        }
    }
}

/// `value` as it must be written to be read back.
fn written(value: &LabelValue) -> String {
    let text = value.as_str();
    if text.is_empty() || text.trim() != text || text.contains([',', '(', ')', '"', '=', '\\']) {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        text.to_owned()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |values: &[LabelValue]| values.iter().map(written).collect::<Vec<_>>().join(",");
        match &self.test {
            Test::Present => write!(f, "{key}"),
            Test::Missing => write!(f, "!{key}"),
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", written(&values[0])),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", written(&values[0])),
            Test::In(values) => write!(f, "{key} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Test::Compare(comparison, Version(parts)) => {
                let sign = match comparison {
                    Comparison::AtLeast => ">=",
                    Comparison::Above => ">",
                    Comparison::AtMost => "<=",
                    Comparison::Below => "<",
                };
                let parts: Vec<String> = parts.iter().map(u64::to_string).collect();
                write!(f, "{key}{sign}{}", parts.join("."))
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.terms.iter().map(Term::to_string).collect();
        f.write_str(&terms.join(","))
    }
}

impl From<Selector> for String {
    fn from(it: Selector) -> String {
        it.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn each_kind_of_term_matches_what_the_spec_says() {
        let phone = labels("platform=android,model=Pixel 8,os=14.3");
        let table = [
            ("platform=android", true),
            ("platform=ios", false),
            ("platform!=ios", true),
            ("rack!=b", true),
            ("model = Pixel 8", true),
            ("model in (Pixel 7, Pixel 8)", true),
            ("model notin (Pixel 7)", true),
            ("rack notin (a,b)", true),
            ("rack in (a,b)", false),
            ("os", true),
            ("!os", false),
            ("!rack", true),
            ("os>=14", true),
            ("os<=14", true),
            ("os>14", false),
            ("os<14", false),
            ("os>=14.3", true),
            ("os>=14.4", false),
            ("os<14.10", true),
            ("os>13.9", true),
            ("model>=1", false),
            ("platform=android, os>=14", true),
            ("platform=android, os>=15", false),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Selector>().unwrap().matches(&phone), expected, "{text}");
        }
        assert!("os>=14.3".parse::<Selector>().unwrap().matches(&labels("os=15")));
        assert!(!"os>=14.3".parse::<Selector>().unwrap().matches(&labels("os=14")));
    }

    #[test]
    fn a_selector_that_nothing_matches_says_what_came_near() {
        let selector: Selector = "platform=android,os>=14".parse().unwrap();
        let mut nearness = Nearness::default();
        for text in ["platform=android,os=13", "platform=linux", "platform=android,os=13"] {
            nearness.add(&selector, &labels(text));
        }
        assert_eq!(nearness.describe(&selector), "2 match platform=android; their os is 13, 13");
        let selector: Selector = "rack=z".parse().unwrap();
        let mut nearness = Nearness::default();
        nearness.add(&selector, &labels("rack=a"));
        nearness.add(&selector, &labels("os=1"));
        assert_eq!(nearness.describe(&selector), "none of 2 resources matches a term; their rack is a, missing");
        assert_eq!(Nearness::default().describe(&selector), "there are no resources");
    }
}
