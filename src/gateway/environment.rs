//! What a worker says that a holder needs to reach a device: a claim, taken only where it looks like variables. Pure.

use std::collections::BTreeMap;

/// Variables of one device.
const VARIABLES_MAX: usize = 64;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 128;
/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 4_096;

/// What fits of an environment, and how many variables do not.
pub fn bounded(claimed: BTreeMap<String, String>) -> (BTreeMap<String, String>, usize) {
    let all = claimed.len();
    let fitting = claimed.into_iter().filter(|(name, value)| is_name(name) && is_value(value));
    let taken: BTreeMap<String, String> = fitting.take(VARIABLES_MAX).collect();
    let left_out = all - taken.len();
    (taken, left_out)
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|letter| letter.is_ascii_uppercase() || letter == '_');
    let rest = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    first && name.len() <= NAME_CHARS_MAX && name.chars().all(rest)
}

fn is_value(value: &str) -> bool {
    value.len() <= VALUE_BYTES_MAX && !value.contains(['\0', '\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(name: &str, value: &str) -> bool {
        bounded([(name.to_owned(), value.to_owned())].into()).0.len() == 1
    }

    #[test]
    fn a_variable_is_taken_that_a_program_can_read_and_nothing_else() {
        let long = "A".repeat(NAME_CHARS_MAX);
        for name in ["ANDROID_SERIAL", "_", "A1", &long] {
            assert!(taken(name, "emulator-5554"), "{name}");
        }
        for name in ["", "1A", "android", "A-B", "A=B", "A B", "\u{c4}", "A\0", &format!("{long}A")] {
            assert!(!taken(name, "x"), "{name:?}");
        }
        assert!(taken("A", "") && taken("A", &"\u{e9}".repeat(VALUE_BYTES_MAX / 2)));
        for value in ["a\0b", "a\nb", "a\rb", &"x".repeat(VALUE_BYTES_MAX + 1)] {
            assert!(!taken("A", value), "{:?}", value.len());
        }
    }

    #[test]
    fn of_too_many_variables_the_rest_is_counted_and_left_out() {
        let many = |count: usize| (0..count).map(|index| (format!("V{index:04}"), String::new())).collect();
        assert_eq!(bounded(many(VARIABLES_MAX)).1, 0);
        let (taken, left_out) = bounded(many(VARIABLES_MAX + 3));
        assert_eq!((taken.len(), left_out), (VARIABLES_MAX, 3));
        assert!(taken.contains_key("V0000"));
    }
}
