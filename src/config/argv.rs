//! A program and its arguments, as a list.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::ConfigError;
use super::given::{Given, Raw};
use super::reader::Reader;

/// Texts of one list, the program counted.
const TEXTS_MAX: usize = 64;
/// Characters of one text.
pub(super) const CHARS_MAX: usize = 4_096;
/// What a shell would read in a text as more than words.
const SHELL: &[char] =
    &['|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '*', '?', '[', ']', '#', '~', '=', '%', '{', '}'];

/// The list that `given` is; takes note of it as it is written.
pub(super) fn argv<'d>(reader: &mut Reader<'d>, given: &Given<'d>) -> Result<Vec<String>, ConfigError> {
    let array = match given.raw {
        Raw::Toml(DeValue::Array(array)) => array,
        Raw::Toml(DeValue::String(text)) => return Err(given.refuse(instead_of(text))),
        _ => {
            return Err(given.refuse("must be a list of texts: the program and its arguments, such as [\"./wipe.sh\"]"));
        }
    };
    if array.is_empty() || array.len() > TEXTS_MAX {
        let many = array.len();
        return Err(given.refuse(format!(
            "has {many} texts; write 1 to {TEXTS_MAX}: the program and its arguments, such as [\"./wipe.sh\"]"
        )));
    }
    let mut texts = Vec::with_capacity(array.len());
    for value in array.iter() {
        let place = reader.document.at(value.span().start);
        let element = Given { key: given.key.clone(), origin: place, raw: Raw::Toml(value.get_ref()) };
        let DeValue::String(text) = value.get_ref() else {
            let shown: String = reader.document.text.get(value.span()).unwrap_or("…").chars().take(40).collect();
            return Err(element.refuse(format!("is a list of texts in quotes; {shown} is none")));
        };
        if text.chars().count() > CHARS_MAX {
            return Err(element.refuse(format!("has a text of more than {CHARS_MAX} characters; pass a file instead")));
        }
        if text.contains('\0') {
            return Err(element.refuse("has a text with a NUL in it, which no program can be given; leave that out"));
        }
        texts.push(text.to_string());
    }
    if texts[0].is_empty() {
        return Err(given.refuse("begins with an empty text; the first one is the program, such as \"./wipe.sh\""));
    }
    reader.note(&given.key, format!("{texts:?}"), given.origin.clone());
    Ok(texts)
}

/// What to write instead of a command line.
fn instead_of(line: &str) -> String {
    let short: String = line.chars().take(200).collect();
    let list = match short.contains(SHELL) {
        true => vec!["sh", "-c", &short],
        false => short.split_whitespace().collect(),
    };
    let list = if list.is_empty() { vec!["./wipe.sh"] } else { list };
    format!("must be a list: it runs without a shell; write {list:?}")
}

/// The program of `argv` where it is named by a relative path: that counts from `directory`. A bare name is looked up in
/// the `PATH`.
pub(super) fn program_under(directory: Option<&Path>, argv: &mut [String]) {
    let program = PathBuf::from(&argv[0]);
    if program.is_absolute() || !argv[0].contains('/') {
        return;
    }
    let Some(directory) = directory else { return };
    let program = program.strip_prefix(".").unwrap_or(&program);
    // A directory that is no text stays out of it: the program runs there, and is found by the path as it is written.
    if let Some(found) = directory.join(program).to_str() {
        argv[0] = found.to_owned();
    }
}
