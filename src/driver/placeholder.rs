//! `{env.NAME}` in the arguments of an allowed tool: a value of the lease's environment.

use std::collections::BTreeMap;

use thiserror::Error;

const OPEN: &str = "{env.";

/// Why the arguments of a tool cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlaceholderError {
    /// The environment has no such variable.
    #[error("the lease's environment has no {0}")]
    Missing(String),
    /// It is not `{env.`, a name of letters, digits and `_`, and `}`.
    #[error("{0:?} begins like a placeholder and is none; write {{env.NAME}}")]
    Malformed(String),
}

/// `argv` with the value for each `{env.NAME}`. Values are taken as they are; other braces mean nothing.
///
/// # Errors
/// The first placeholder without a value, or that is no placeholder.
pub fn fill(argv: &[String], environment: &BTreeMap<String, String>) -> Result<Vec<String>, PlaceholderError> {
    let value = |name: &str| environment.get(name).ok_or_else(|| PlaceholderError::Missing(name.to_owned()));
    argv.iter().map(|argument| replace(argument, |name| value(name).map(String::as_str))).collect()
}

/// Checks what can be checked before there is a lease.
///
/// # Errors
/// [`PlaceholderError::Malformed`].
pub fn check(argv: &[String]) -> Result<(), PlaceholderError> {
    argv.iter().try_for_each(|argument| replace(argument, |_| Ok("")).map(|_| ()))
}

fn replace<'a>(
    argument: &str,
    value: impl Fn(&str) -> Result<&'a str, PlaceholderError>,
) -> Result<String, PlaceholderError> {
    let mut filled = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some((before, after)) = rest.split_once(OPEN) {
        filled.push_str(before);
        let named = after.split_once('}').filter(|(name, _)| is_name(name));
        let Some((name, after)) = named else { return Err(PlaceholderError::Malformed(argument.to_owned())) };
        filled.push_str(value(name)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(argument: &str) -> Result<String, String> {
        let environment = [("ANDROID_SERIAL", "emu{env.X}"), ("PORT", "5037"), ("EMPTY", "")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        fill(&[argument.to_owned()], &environment).map(|argv| argv.concat()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_placeholder_takes_its_value_wherever_it_stands() {
        let table = [
            ("adb", "adb"),
            ("{env.PORT}", "5037"),
            ("-P{env.PORT}:{env.PORT}!", "-P5037:5037!"),
            ("{env.EMPTY}", ""),
            ("{PORT} {} } {env", "{PORT} {} } {env"),
            // What a value holds is not looked at again.
            ("{env.ANDROID_SERIAL}", "emu{env.X}"),
        ];
        for (argument, expected) in table {
            assert_eq!(filled(argument).as_deref(), Ok(expected), "{argument}");
        }
    }

    #[test]
    fn a_placeholder_without_a_value_is_named() {
        assert_eq!(filled("a{env.USB_PATH}").unwrap_err(), "the lease's environment has no USB_PATH");
        assert_eq!(filled("{env.path}").unwrap_err(), "the lease's environment has no path");
    }

    #[test]
    fn what_only_begins_like_a_placeholder_is_refused_with_its_right_form() {
        for argument in ["{env.PORT", "{env.}", "{env.A B}", "{env.9}", "{env.{env.PORT}}"] {
            let words = format!("{argument:?} begins like a placeholder and is none; write {{env.NAME}}");
            assert_eq!(filled(argument), Err(words.clone()));
            assert_eq!(check(&[argument.to_owned()]).unwrap_err().to_string(), words);
        }
        assert_eq!(check(&["x".to_owned(), "{env.ANY}".to_owned()]), Ok(()));
    }
}
