//! What an Android device says of itself: its system properties, read in one call of its shell.

use std::collections::BTreeMap;

use super::DRIVER;
use super::serial::Serial;
use crate::model::{DeviceFacts, DeviceIdentity, LabelKey, LabelValue};

/// Asks for the three properties, a line for each.
pub(super) const PROPERTIES_COMMAND: &str =
    "getprop ro.product.model; getprop ro.build.version.release; getprop ro.build.version.sdk";
/// The labels that the lines become.
const LABELS: [&str; 3] = ["model", "os", "sdk"];

/// The facts of a device from its answer to [`PROPERTIES_COMMAND`]. A property without a value, or with one that is no
/// label, is no label. None when the answer is not of three lines with a number in the last: every Android says its SDK level.
pub(super) fn facts(port: u16, serial: &Serial, answer: &str) -> Option<DeviceFacts> {
    let values: Vec<&str> = answer.trim_end().split('\n').map(str::trim).collect();
    let is_number = |sdk: &&str| !sdk.is_empty() && sdk.bytes().all(|byte| byte.is_ascii_digit());
    if values.len() != LABELS.len() || !values.last().is_some_and(is_number) {
        return None;
    }
    let mut texts = vec![("platform", "android"), ("serial", serial.as_str())];
    texts.extend(LABELS.into_iter().zip(values).filter(|(_, value)| !value.is_empty()));
    let label = |(key, value): (&str, &str)| {
        let key: LabelKey = key.parse().expect("the keys are constants of this file");
        Some((key, value.parse::<LabelValue>().ok()?))
    };
    Some(DeviceFacts {
        labels: texts.into_iter().filter_map(label).collect(),
        environment: environment(port, serial),
        identity: Some(DeviceIdentity { driver: DRIVER.to_owned(), serial: serial.to_string() }),
    })
}

/// What adb itself needs to reach the device.
fn environment(port: u16, serial: &Serial) -> BTreeMap<String, String> {
    let variables = [("ANDROID_SERIAL", serial.to_string()), ("ANDROID_ADB_SERVER_PORT", port.to_string())];
    variables.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(answer: &str) -> Option<Vec<(String, String)>> {
        let facts = facts(5037, &"S1".parse().unwrap(), answer)?;
        Some(facts.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    fn expect(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn the_properties_of_a_device_are_its_labels() {
        let all = [("model", "Pixel 8"), ("os", "14"), ("platform", "android"), ("sdk", "34"), ("serial", "S1")];
        assert_eq!(labels("Pixel 8\n14\n34\n"), expect(&all));
        assert_eq!(labels("Pixel 8\r\n14\r\n34\r\n"), expect(&all), "an old device ends its lines as a terminal does");
    }

    #[test]
    fn a_device_tells_how_it_is_reached_and_which_it_is() {
        let facts = facts(6037, &"S1".parse().unwrap(), "Pixel 8\n14\n34\n").unwrap();
        let environment: Vec<_> = facts.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(environment, ["ANDROID_ADB_SERVER_PORT=6037", "ANDROID_SERIAL=S1"]);
        assert_eq!(facts.identity, Some(DeviceIdentity { driver: "adb".to_owned(), serial: "S1".to_owned() }));
    }

    #[test]
    fn what_is_no_label_is_left_out() {
        let strange = format!("Pixel\u{7}8\n{}\n34\n", "9".repeat(129));
        assert_eq!(labels(&strange), expect(&[("platform", "android"), ("sdk", "34"), ("serial", "S1")]));
        assert_eq!(
            labels("M\n\n34\n"),
            expect(&[("model", "M"), ("platform", "android"), ("sdk", "34"), ("serial", "S1")])
        );
        assert_eq!(labels("\n\n34"), expect(&[("platform", "android"), ("sdk", "34"), ("serial", "S1")]));
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        for answer in
            ["", "\n\n\n", "a\nb\n3\n4\n", "sh: getprop: not found\nsh: getprop: not found\nsh: getprop: not found\n"]
        {
            assert_eq!(labels(answer), None, "{answer:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(answer in "(?s).{0,400}") {
            if let Some(labels) = labels(&answer) {
                prop_assert!(labels.len() <= 5);
            }
        }
    }
}
