//! What `berth config check` prints.

use std::fmt;

use super::Effective;

/// No value is padded further than this; a long one pushes only its own comment.
const PADDED_CHARS_MAX: usize = 60;

impl fmt::Display for Effective {
    /// One line for each value: `key = value  # origin`, the comments in one column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<(String, &super::Origin)> =
            self.values.iter().map(|value| (format!("{} = {}", value.key, value.value), &value.origin)).collect();
        let lengths = lines.iter().map(|(line, _)| line.chars().count());
        let width = lengths.filter(|length| *length <= PADDED_CHARS_MAX).max().unwrap_or(0);
        lines.iter().try_for_each(|(line, origin)| writeln!(f, "{line:width$}  # {origin}"))
    }
}
