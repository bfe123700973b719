//! Where a command's words go: data to stdout, talk to stderr.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// The two streams, and how to write to them.
pub(super) struct Output<'a> {
    json: bool,
    colour: bool,
    out: Box<dyn Write + 'a>,
    err: Box<dyn Write + 'a>,
}

impl<'a> Output<'a> {
    /// The streams of this process. Colour only on a terminal, and never with `NO_COLOR`.
    pub(super) fn of_process(json: bool) -> Output<'static> {
        let set = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = !json && io::stderr().is_terminal() && !set("NO_COLOR") && !dumb;
        Output { json, colour, out: Box::new(io::stdout()), err: Box::new(io::stderr()) }
    }

    /// Other streams, without colour.
    #[cfg(test)]
    pub(super) fn to(json: bool, out: impl Write + 'a, err: impl Write + 'a) -> Self {
        Output { json, colour: false, out: Box::new(out), err: Box::new(err) }
    }

    /// True with `--json`.
    pub(super) fn json(&self) -> bool {
        self.json
    }

    /// Prints an answer: `shape` with `--json`, else `human`, which ends in a line break or is empty.
    pub(super) fn answer(&mut self, shape: &impl Serialize, human: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.json {
            let text = serde_json::to_string_pretty(shape)?;
            self.data(&format!("{text}\n"))
        } else {
            self.data(&printable(&human()))
        }
    }

    /// Prints one line of data.
    pub(super) fn line(&mut self, text: &str) -> anyhow::Result<()> {
        self.data(&format!("{}\n", printable(text).replace('\n', "\u{fffd}")))
    }

    /// Prints `text` as it is.
    pub(super) fn data(&mut self, text: &str) -> anyhow::Result<()> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// Tells people what is going on; programs are not told.
    pub(super) fn talk(&mut self, text: &str) {
        if !self.json {
            self.complain(text);
        }
    }

    /// Prints a line of `label` and `text` to stderr.
    pub(super) fn labelled(&mut self, label: &str, code: &str, text: &str) {
        let label = if self.colour { format!("\x1b[1;{code}m{label}\x1b[0m") } else { label.to_owned() };
        // The label may hold colours, the text may not.
        let _ = writeln!(self.err, "{label} {}", printable(text));
    }

    /// Prints a line to stderr. Whoever closed it does not want to know.
    pub(super) fn complain(&mut self, text: &str) {
        let _ = writeln!(self.err, "{}", printable(text));
    }
}

/// Without the characters that would steer a terminal; line breaks stay.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
