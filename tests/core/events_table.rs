//! The README's table of events is what the code writes.

use berth::model::EventKind;

const README: &str = include_str!("../../README.md");

#[test]
fn every_event_and_its_payload_stands_in_the_readme_and_no_other() {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let begin = README.find("| event | when | payload |").expect("the table of events");
    let rows = README[begin..].lines().skip(2).take_while(|line| line.starts_with('|')).map(cells);
    let told: Vec<(String, String)> = rows.map(|row| (row[0].clone(), row[2].clone())).collect();
    let fields = |kind: &EventKind| match kind.fields() {
        [] => "—".to_owned(),
        fields => fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", "),
    };
    let known: Vec<(String, String)> = EventKind::ALL.iter().map(|kind| (format!("`{kind}`"), fields(kind))).collect();
    assert_eq!(told, known);
}
