//! Lists and sheets without borders, for people and for `grep`.

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::model::Labels;

/// A header and rows. A column that is empty in every row is left out; without rows there is nothing.
pub(super) fn list<const N: usize>(headers: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let used: Vec<usize> = (0..N).filter(|&column| rows.iter().any(|row| !row[column].is_empty())).collect();
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(used.iter().map(|&column| headers[column]));
    for row in &rows {
        table.add_row(used.iter().map(|&column| row[column].as_str()));
    }
    finished(table)
}

/// Names and what they are, one a line. What is empty is left out.
pub(super) fn sheet<const N: usize>(facts: [(&str, String); N]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        table.add_row([*name, fact.as_str()]);
    }
    finished(table)
}

/// Labels as a selector would ask for them.
pub(super) fn labels(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn finished(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}
