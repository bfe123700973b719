//! The plan of the house, which stands in the manual at the library's root, held against the code: a folder uses folders
//! on lines above its own, never below, never beside.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
/// Every way to read a clock that the standard library, tokio and jiff offer.
const CLOCKS: [&str; 4] = ["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now"];

/// One source file.
struct Source {
    /// From `src`, with slashes.
    name: String,
    text: String,
}

fn sources() -> Vec<Source> {
    fn add(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    add(&root, &mut paths);
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        Source { name, text: fs::read_to_string(&path).unwrap() }
    };
    paths.into_iter().map(read).collect()
}

impl Source {
    /// The folder of the plan that the file belongs to.
    fn folder(&self) -> &str {
        self.name.split(['/', '.']).next().unwrap()
    }

    /// The lines without their comments, numbered from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line)))
    }

    /// What the file uses of this crate: the line and the name that follows the crate's own.
    fn uses(&self) -> Vec<(usize, String)> {
        // The program is a crate of its own beside the library.
        let root = if self.folder() == "main" { "berth::" } else { "crate::" };
        let mut used = Vec::new();
        let lines: Vec<_> = self.code().collect();
        for (index, (number, line)) in lines.iter().enumerate() {
            for (at, _) in line.match_indices(root) {
                if line[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':')) {
                    continue;
                }
                let rest = lines[index + 1..].iter().map(|(_, line)| *line);
                let rest = std::iter::once(&line[at + root.len()..]).chain(rest);
                used.extend(first_names(rest).into_iter().map(|name| (*number, name)));
            }
        }
        used
    }

    /// How many `super::` lead from the file to the root of the crate.
    fn depth(&self) -> usize {
        let parts = self.name.split('/').count();
        if self.name.ends_with("/mod.rs") || self.name == "lib.rs" { parts - 1 } else { parts }
    }
}

fn without_comment(line: &str) -> &str {
    let in_text = |at: usize| line[..at].matches('"').count() % 2 == 1;
    let comment = line.match_indices("//").map(|(at, _)| at).find(|at| !in_text(*at));
    &line[..comment.unwrap_or(line.len())]
}

/// The name at the beginning of a path, or all of them when the path begins with a brace.
fn first_names<'a>(rest: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut nesting = 0;
    let mut at_name = true;
    for character in rest.flat_map(|line| line.chars().chain(std::iter::once(' '))) {
        match character {
            '{' => {
                nesting += 1;
                at_name = at_name && nesting == 1;
            }
            '}' => nesting -= 1,
            ',' if nesting == 1 => {
                names.push(String::new());
                at_name = true;
            }
            '_' | '*' | 'a'..='z' | 'A'..='Z' | '0'..='9' if at_name => names.last_mut().unwrap().push(character),
            _ => at_name = at_name && names.last().unwrap().is_empty(),
        }
        if nesting == 0 && !at_name {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The lines of the plan.
struct Plan(Vec<Vec<String>>);

impl Plan {
    fn read(sources: &[Source]) -> Self {
        let root = sources.iter().find(|source| source.name == "lib.rs").unwrap();
        let mut lines = Vec::new();
        for row in root.text.lines().filter_map(|line| line.strip_prefix("//! | ")) {
            let mut columns = row.split(" | ");
            let Some(Ok(number)) = columns.next().map(str::parse::<usize>) else { continue };
            assert_eq!(number, lines.len() + 1, "the lines are numbered from 1");
            let names = columns.next().unwrap().split_whitespace();
            lines.push(names.map(|name| name.trim_matches(['[', '`', ']']).to_owned()).collect());
        }
        Self(lines)
    }

    /// On which line a folder stands, and where on that line.
    fn place(&self, folder: &str) -> Option<(usize, usize)> {
        let place = |line: &Vec<String>| line.iter().position(|name| *name == folder);
        self.0.iter().enumerate().find_map(|(number, line)| Some((number, place(line)?)))
    }

    fn may_use(&self, folder: &str, other: &str) -> bool {
        let last = self.0.len() - 1;
        let (own, used) = match (folder, self.place(folder), self.place(other)) {
            // The program is the library's first user.
            ("main", None, Some(used)) => ((last + 1, 0), used),
            (_, Some(own), Some(used)) => (own, used),
            _ => return false,
        };
        // The last line is assembly, which puts together what stands left of it.
        let assembles = own.0 == last && used.0 == last && used.1 < own.1;
        folder == other || used.0 < own.0 || assembles
    }
}

#[test]
fn every_folder_uses_only_folders_above_its_own() {
    let sources = sources();
    let plan = Plan::read(&sources);
    let mut wrong = String::new();
    for source in &sources {
        for (line, used) in source.uses() {
            if !plan.may_use(source.folder(), &used) {
                writeln!(wrong, "src/{}:{line}: {} uses {used}", source.name, source.folder()).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "against the plan of the house:\n{wrong}");
}

#[test]
fn the_plan_has_every_folder_and_no_other() {
    let sources = sources();
    let folders: BTreeSet<&str> = sources.iter().map(Source::folder).collect();
    let Plan(lines) = Plan::read(&sources);
    let planned: BTreeSet<&str> = lines.iter().flatten().map(String::as_str).chain(["lib", "main"]).collect();
    assert_eq!(folders, planned);
    // The library's root belongs to no line, so nothing may live in it.
    let root = sources.iter().find(|source| source.name == "lib.rs").unwrap();
    let other = root.code().find(|(_, line)| !(line.is_empty() || line.starts_with("pub mod ")));
    assert_eq!(other, None, "the library's root only names its folders");
}

#[test]
fn no_file_reaches_another_folder_by_way_of_its_parents() {
    let mut wrong = String::new();
    for source in sources() {
        let mut inner = 0;
        for (number, line) in source.code() {
            // Formatted code: a module within a file begins and ends at the left edge.
            if line.ends_with('{') && (line.starts_with("mod ") || line.starts_with("pub mod ")) {
                inner = 1;
            } else if line == "}" {
                inner = 0;
            }
            let longest = line.split(|c: char| !(c.is_alphanumeric() || matches!(c, ':' | '_')));
            let longest = longest.map(|path| path.matches("super::").count()).max().unwrap_or(0);
            if longest >= source.depth() + inner && longest > 0 {
                writeln!(wrong, "src/{}:{number}: {line}", source.name).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "write these from the crate's root, where the plan sees them:\n{wrong}");
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let lines = |source: &Source| (source.text.lines().count(), source.name.clone());
    let long: Vec<_> = sources().iter().map(lines).filter(|(lines, _)| *lines > FILE_LINES_MAX).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn only_one_file_reads_a_clock() {
    let mut wrong = String::new();
    for source in sources().iter().filter(|source| source.name != "clock.rs") {
        for (number, line) in source.code().filter(|(_, line)| CLOCKS.iter().any(|clock| line.contains(clock))) {
            writeln!(wrong, "src/{}:{number}: {line}", source.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "take a `Clock` instead:\n{wrong}");
}

#[test]
fn the_plan_is_read_as_it_is_meant() {
    let plan = Plan::read(&sources());
    assert_eq!(plan.0.len(), 8);
    let may = |folder: &str, other: &str| plan.may_use(folder, other);
    assert!(may("host", "store") && may("host", "host") && may("node", "config") && may("main", "node"));
    assert!(!may("store", "host"), "below");
    assert!(!may("host", "gateway") && !may("model", "clock"), "beside");
    assert!(!may("config", "node") && !may("cli", "config") && !may("node", "main"), "below");
    assert!(!may("host", "*") && !may("host", "utils"), "what is not in the plan");
    let source = |text: &str| Source { name: "cli/table.rs".to_owned(), text: text.to_owned() };
    let used = |text: &str| source(text).uses().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(used("use crate::model::{Ask, Code};"), ["model"]);
    assert_eq!(used("use crate::{\n    store::{Batch, Store},\n    wire, // crate::host\n};\n"), ["store", "wire"]);
    assert_eq!(used("    fn f() -> crate::link::Error { crate::node::run() }"), ["link", "node"]);
    assert_eq!(used("use crate::*;"), ["*"]);
    assert_eq!(used("/// [`crate::host`]\nlet at = \"berth://lab\"; // crate::host"), Vec::<String>::new());
}
