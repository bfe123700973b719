//! Reading a selector, with errors that point at the place.

use std::str::FromStr;

use winnow::ascii::{multispace0, multispace1};
use winnow::combinator::{alt, cut_err, delimited, eof, opt, preceded, separated, terminated};
use winnow::error::{ContextError, StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::token::{one_of, take_while};

use super::label::{LabelKey, LabelValue};
use super::selector::{Comparison, Selector, Term, Test, Version};

/// Why a text is no selector: shows it, with a caret under the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}\n  {shown}\n  {caret:>width$}", caret = "^", width = self.column + 1)]
pub struct SelectorError {
    why: String,
    shown: String,
    column: usize,
}

type Parsed<T> = winnow::ModalResult<T, ContextError>;

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.len() > Selector::BYTES_MAX {
            return Err(too_long(text));
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(located("no control characters", text, at));
        }
        let terms = terminated(terms, eof.context(expected("',' or the end"))).parse(text).map_err(|error| {
            let what = error.inner().context().find_map(|context| match context {
                StrContext::Expected(StrContextValue::Description(what)) => Some(*what),
                _ => None,
            });
            located(what.unwrap_or("',' or the end"), text, error.offset())
        })?;
        let many = format!("a selector has at most {} terms", Selector::TERMS_MAX);
        let selector =
            Selector::new(terms).ok_or_else(|| SelectorError { why: many, shown: text.to_owned(), column: 0 })?;
        // It travels on as it is written here, which may be longer: a quote or a backslash takes two.
        if selector.to_string().len() > Selector::BYTES_MAX {
            return Err(too_long(text));
        }
        Ok(selector)
    }
}

impl TryFrom<String> for Selector {
    type Error = SelectorError;

    fn try_from(text: String) -> Result<Self, SelectorError> {
        text.parse()
    }
}

fn too_long(text: &str) -> SelectorError {
    let why = format!("a selector is at most {} bytes long", Selector::BYTES_MAX);
    SelectorError { why, shown: text.chars().take(40).collect(), column: 40 }
}

/// The error at byte `at` of `text`; the column counts characters and a long text is shown around the place.
fn located(what: &str, text: &str, at: usize) -> SelectorError {
    const BEFORE: usize = 60;
    let before: Vec<char> = text[..at].chars().collect();
    let start = before.len().saturating_sub(BEFORE);
    let tidy = |c: char| if c.is_control() { '�' } else { c };
    let shown = before[start..].iter().copied().chain(text[at..].chars().take(20)).map(tidy).collect();
    SelectorError { why: format!("expected {what}"), shown, column: before.len() - start }
}

fn terms(input: &mut &str) -> Parsed<Vec<Term>> {
    separated(1.., delimited(multispace0, cut_err(term), multispace0), ',').parse_next(input)
}

fn term(input: &mut &str) -> Parsed<Term> {
    if opt(terminated('!', multispace0)).parse_next(input)?.is_some() {
        return key.map(|key| Term { key, test: Test::Missing }).parse_next(input);
    }
    let key = key.parse_next(input)?;
    let test = opt(alt((one, set, comparison))).parse_next(input)?.unwrap_or(Test::Present);
    Ok(Term { key, test })
}

fn key(input: &mut &str) -> Parsed<LabelKey> {
    take_while(1.., |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-'))
        .try_map(|text: &str| text.parse::<LabelKey>())
        .context(expected("a label key"))
        .parse_next(input)
}

fn one(input: &mut &str) -> Parsed<Test> {
    let sign = delimited(multispace0, alt(("!=", "==", "=")), multispace0).parse_next(input)?;
    let value = cut_err(value).parse_next(input)?;
    Ok(if sign == "!=" { Test::NotIn(vec![value]) } else { Test::In(vec![value]) })
}

fn set(input: &mut &str) -> Parsed<Test> {
    let word = preceded(multispace1, alt(("notin", "in"))).parse_next(input)?;
    multispace0.parse_next(input)?;
    cut_err('('.context(expected("'('"))).parse_next(input)?;
    let item = delimited(multispace0, cut_err(value), multispace0);
    let values: Vec<LabelValue> = separated(1..=Selector::VALUES_MAX, item, ',').parse_next(input)?;
    cut_err(')'.context(expected("',' or ')'"))).parse_next(input)?;
    Ok(if word == "in" { Test::In(values) } else { Test::NotIn(values) })
}

fn comparison(input: &mut &str) -> Parsed<Test> {
    let sign = delimited(multispace0, alt((">=", "<=", ">", "<")), multispace0).parse_next(input)?;
    let version = cut_err(
        take_while(1.., |c: char| c.is_ascii_digit() || c == '.')
            .verify_map(Version::parse)
            .context(expected("a version such as 14 or 14.3")),
    )
    .parse_next(input)?;
    let comparison = match sign {
        ">=" => Comparison::AtLeast,
        "<=" => Comparison::AtMost,
        ">" => Comparison::Above,
        _ => Comparison::Below,
    };
    Ok(Test::Compare(comparison, version))
}

fn value(input: &mut &str) -> Parsed<LabelValue> {
    alt((quoted, bare))
        .try_map(LabelValue::try_from)
        .context(expected("a value of at most 128 characters"))
        .parse_next(input)
}

fn bare(input: &mut &str) -> Parsed<String> {
    take_while(1.., |c: char| !matches!(c, ',' | '(' | ')' | '"' | '='))
        .map(|text: &str| text.trim_end().to_owned())
        .parse_next(input)
}

fn quoted(input: &mut &str) -> Parsed<String> {
    let plain = take_while(1.., |c: char| !matches!(c, '"' | '\\')).map(str::to_owned);
    let escaped = preceded('\\', one_of(['"', '\\'])).map(String::from);
    let inside =
        winnow::combinator::repeat(0.., alt((plain, escaped))).fold(String::new, |text, part: String| text + &part);
    delimited('"', inside, cut_err('"'.context(expected("a closing quote")))).parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> String {
        text.parse::<Selector>().unwrap_err().to_string()
    }

    #[test]
    fn an_error_points_at_the_place() {
        assert_eq!(
            refused("platform=android,,os"),
            "expected a label key\n  platform=android,,os\n                   ^"
        );
        assert_eq!(refused("os>=x"), "expected a version such as 14 or 14.3\n  os>=x\n      ^");
        assert_eq!(refused("os in 14"), "expected '('\n  os in 14\n        ^");
        assert_eq!(refused("Platform=x"), "expected a label key\n  Platform=x\n  ^");
        for bad in ["", " ", "a=", "a in ()", "a in (b", "a=\"b", "a=b=c", "a b", "=x", "a=(b)", "a>=1..2", "a\n=b"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_selector_has_bounds() {
        assert!(vec!["a"; Selector::TERMS_MAX].join(",").parse::<Selector>().is_ok());
        assert!(vec!["a"; Selector::TERMS_MAX + 1].join(",").parse::<Selector>().is_err());
        assert!(format!("a={}", "x".repeat(129)).parse::<Selector>().is_err());
        assert!("a,".repeat(Selector::BYTES_MAX).parse::<Selector>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(values in prop::collection::vec("[ -~ł]{0,12}", 1..4), key in "[a-z][a-z0-9._-]{0,8}", sign in 0..4) {
            let key: LabelKey = key.parse().unwrap();
            let values: Vec<LabelValue> = values.iter().map(|v| v.parse().unwrap()).collect();
            let test = match sign {
                0 => Test::In(values),
                1 => Test::NotIn(values),
                2 => Test::Present,
                _ => Test::Missing,
            };
            let selector = Selector::new(vec![Term { key, test }]).unwrap();
            prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<Selector>();
        }
    }
}
