//! From `--platform`, `--model` and `--os` to a selector (SPEC §12).

use super::lease_args::TargetArgs;
use crate::model::Selector;

/// The operators that the value of `--os` may begin with, longest first.
const OPERATORS: [&str; 7] = [">=", "<=", "!=", "==", ">", "<", "="];

/// Why the three make no selector.
#[derive(Debug, thiserror::Error)]
#[error("--platform, --model and --os make no selector: {0}")]
pub(super) struct Unselectable(String);

impl TargetArgs {
    /// The selector that is asked for; none when a resource is named.
    ///
    /// # Errors
    /// A value is too long, or `--os` has an operator without a version.
    pub(super) fn selector(&self) -> Result<Option<Selector>, Unselectable> {
        let terms = [
            self.platform.as_ref().map(|value| format!("platform={}", quoted(value))),
            self.model.as_ref().map(|value| format!("model={}", quoted(value))),
            self.os.as_ref().map(|value| os_term(value)),
        ];
        let terms: Vec<String> = terms.into_iter().flatten().collect();
        if terms.is_empty() {
            return Ok(self.select.clone());
        }
        // Reading what was written checks every bound, in the one place that knows them.
        terms
            .join(",")
            .parse()
            .map(Some)
            .map_err(|error: <Selector as std::str::FromStr>::Err| Unselectable(error.to_string()))
    }
}

fn os_term(value: &str) -> String {
    match OPERATORS.iter().find_map(|sign| Some((sign, value.strip_prefix(sign)?.trim()))) {
        // A version that is compared is no text, and stands without quotes.
        Some((sign @ (&">=" | &"<=" | &">" | &"<"), version)) => format!("os{sign}{version}"),
        Some((sign, text)) => format!("os{sign}{}", quoted(text)),
        None => format!("os={}", quoted(value)),
    }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A label's value as an argument. An empty one is nearly always a variable that a script forgot to set.
pub(super) fn value(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("is empty; a label's empty value is asked for with --select 'key=\"\"'".to_owned()),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(platform: Option<&str>, model: Option<&str>, os: Option<&str>) -> Result<String, String> {
        let text = |value: Option<&str>| value.map(str::to_owned);
        let target = TargetArgs { platform: text(platform), model: text(model), os: text(os), ..TargetArgs::default() };
        target.selector().map(|selector| selector.unwrap().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn platform_model_and_os_become_one_selector() {
        assert_eq!(selector(Some("android"), None, None).unwrap(), "platform=android");
        assert_eq!(
            selector(Some("android"), Some("Pixel 8"), Some("15")).unwrap(),
            "platform=android,model=Pixel 8,os=15"
        );
    }

    #[test]
    fn os_may_begin_with_an_operator() {
        for (given, written) in [
            (">=14", "os>=14"),
            (">= 14.3", "os>=14.3"),
            ("<15", "os<15"),
            ("!=13", "os!=13"),
            ("=13", "os=13"),
            ("==13", "os=13"),
            ("Windows 11", "os=Windows 11"),
        ] {
            assert_eq!(selector(None, None, Some(given)).unwrap(), written, "{given}");
        }
        assert!(selector(None, None, Some(">=fourteen")).unwrap_err().contains("a version such as 14"));
    }

    #[test]
    fn a_value_cannot_smuggle_in_a_term() {
        for text in [r#"a,os=1"#, r#"a" ,b="c"#, r"a\", "a=b", "(a)"] {
            let target = TargetArgs { model: Some(text.to_owned()), ..TargetArgs::default() };
            let selector = target.selector().unwrap().unwrap();
            let labels = [("model".parse().unwrap(), text.parse().unwrap())].into();
            assert!(selector.matches(&labels), "{text} became {selector}");
        }
        assert!(selector(None, Some(&"x".repeat(129)), None).unwrap_err().contains("at most 128"));
    }
}
