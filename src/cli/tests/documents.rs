//! Every command that the documents and the help show is one that is understood.

use clap::CommandFactory;

use super::super::args::Cli;
use super::parse;

const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", include_str!("../../../README.md")),
    ("docs/runbook-holds.md", include_str!("../../../docs/runbook-holds.md")),
    ("config/lab.toml", include_str!("../../../config/lab.toml")),
    ("config/maintenance.toml", include_str!("../../../config/maintenance.toml")),
];
const UUID: &str = "00000000-0000-4000-8000-000000000000";

/// The words of one command as a shell would split them, up to what it does with its output; a substitution stands for a
/// day.
fn words(line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    while let Some(begin) = line.find("$(") {
        let end = begin + line[begin..].find(')').expect("the substitution ends");
        let what = if line[begin..end].contains("jq") { "hold_…" } else { "2026-08-28" };
        line.replace_range(begin..=end, what);
    }
    let line = line.replace("${day}", "2026-08-28");
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    for word in &mut words {
        if word == "NAME" {
            *word = "rack-1".to_owned();
        }
        for prefix in ["book_", "hold_", "lse_", "req_"] {
            // Also with a worker's name before it, as a gateway has it.
            if let Some(worker) =
                word.strip_suffix(&format!("{prefix}…")).filter(|it| it.is_empty() || it.ends_with('.'))
            {
                *word = format!("{worker}{prefix}{UUID}");
            }
        }
    }
    words
}

/// The commands in a text: lines that begin with one, behind a prompt, a comment or a pipe, joined where they go on.
fn commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let line = line.trim_start_matches(['#', '$', ' ']);
        let (line, more) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        if goes_on {
            found.last_mut().expect("it goes on from a line").push_str(line);
            goes_on = more;
            continue;
        }
        let begin = if line.starts_with("berth ") { Some(0) } else { line.find("| berth ").map(|at| at + 2) };
        // In the help, what a command is for stands some spaces behind it.
        let command = begin.map(|begin| line[begin..].split("   ").next().unwrap_or_default());
        // "berth …" in prose, or the first line of what a node says.
        if let Some(command) = command.filter(|command| command.starts_with("berth ") && !command.contains(" · ")) {
            found.push(command.to_owned());
            goes_on = more;
        }
    }
    found
}

#[track_caller]
fn understood(place: &str, text: &str) -> usize {
    let commands = commands(text);
    for command in &commands {
        let words = words(command);
        let line: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        if let Err(error) = parse(&line) {
            panic!("{place}: {command}\n{line:?}\n{error}");
        }
    }
    commands.len()
}

#[test]
fn every_command_of_the_documents_is_understood() {
    let shown: Vec<usize> = DOCUMENTS.iter().map(|(name, text)| understood(name, text)).collect();
    assert!(shown.iter().zip([30, 12, 1, 5]).all(|(shown, least)| *shown >= least), "{shown:?}");
}

#[test]
fn every_example_of_the_help_is_understood() {
    fn below(command: &clap::Command) -> usize {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let own = understood(command.get_name(), &examples);
        own + command.get_subcommands().map(below).sum::<usize>()
    }
    let shown = below(&Cli::command());
    assert!(shown > 30, "{shown}");
}
