//! `berth lease holds`, and `berth holds` for operators.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::bookings::{said, shown, window};
use super::failure::Misuse;
use super::hold_args::{HoldCommand, HoldsCommand};
use super::lease::until;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::service::calendar::ask::ConfirmBody;
use crate::service::calendar::views::{HoldView, Holds, OneBooking, OneHold, Paused};
use crate::trust::HoldToken;

/// A token is far shorter; whatever is longer is another file.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

pub(super) async fn run(command: HoldCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    match command {
        HoldCommand::Create(args) => {
            let created = client.hold_slot(&args.resource, &args.body()).await?;
            let hold = &created.hold;
            output.answer(&created, || {
                let window = window(hold.starts_at, hold.ends_at);
                let held = format!("held {} {} {window} until {}", hold.id, hold.resource_id, until(hold.expires_at));
                format!("{held}\n{}\n", created.token.expose())
            })?;
            output.talk("the token is not shown again; `berth lease holds confirm` and `release` take it from a file");
            Ok(())
        }
        HoldCommand::List { resource } => {
            let holds = client.holds(&resource).await?;
            if holds.is_empty() {
                output.talk("no holds");
            }
            let human = listed(&holds);
            output.answer(&Holds { holds }, || human)
        }
        HoldCommand::Show { hold } => {
            let hold = client.hold(&hold).await?;
            let human = sheet(&hold);
            output.answer(&OneHold { hold }, || human)
        }
        HoldCommand::Confirm { hold, token_file, note } => {
            let body = ConfirmBody { token: token_of(&token_file)?, note };
            let booking = client.confirm(&hold, &body).await?;
            let human = said("booked", &booking);
            output.answer(&OneBooking { booking }, || human)
        }
        HoldCommand::Release { hold, token_file } => {
            let token = token_file.as_deref().map(token_of).transpose()?;
            let hold = client.release_hold(&hold, token.as_ref()).await?;
            let window = window(hold.starts_at, hold.ends_at);
            let human = format!("released {} {} {window}\n", hold.id, hold.resource_id);
            output.answer(&OneHold { hold }, || human)
        }
    }
}

/// `berth holds pause` and `resume`.
pub(super) async fn operate(command: HoldsCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let (resource, pause) = match command {
        HoldsCommand::Pause { resource } => (resource, true),
        HoldsCommand::Resume { resource } => (resource, false),
    };
    let paused = client.pause_holds(resource.as_ref(), pause).await?;
    if paused && !pause {
        output.talk("they are still paused: by the gateway or on the whole node; `berth doctor` says more");
    }
    output.answer(&Paused { paused }, || {
        let place = resource.map(|resource| format!(" on {resource}")).unwrap_or_default();
        match paused {
            true => format!("new holds are paused{place}\n"),
            false => format!("new holds are made again{place}\n"),
        }
    })
}

/// The token in a file, or in the standard input for `-`.
fn token_of(path: &Path) -> Result<HoldToken, Misuse> {
    match path.to_str() {
        Some("-") => token_in(io::stdin().lock(), "the standard input"),
        _ => {
            let name = format!("the token file {}", path.display());
            let file = File::open(path).map_err(|error| Misuse(format!("{name} cannot be read: {error}")))?;
            token_in(file, &name)
        }
    }
}

/// The token that `source` has and nothing else. What it has is never shown.
fn token_in(source: impl Read, name: &str) -> Result<HoldToken, Misuse> {
    let mut bytes = Vec::new();
    let read = source.take(TOKEN_FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| Misuse(format!("{name} cannot be read: {error}")))?;
    let token = std::str::from_utf8(&bytes).ok().and_then(|text| HoldToken::parse(text.trim()));
    token.ok_or_else(|| {
        Misuse(format!("{name} has no token of a hold; put the token alone into it, as its creation has shown it"))
    })
}

fn booking(hold: &HoldView) -> String {
    hold.booking_id.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn listed(holds: &[HoldView]) -> String {
    let rows = holds.iter().map(|hold| {
        [
            hold.id.to_string(),
            hold.resource_id.to_string(),
            shown(&hold.holder_id),
            until(hold.starts_at),
            until(hold.ends_at),
            hold.status.as_str().to_owned(),
            until(hold.expires_at),
            booking(hold),
        ]
    });
    table::list(["HOLD", "RESOURCE", "HOLDER", "FROM", "TO", "STATUS", "UNTIL", "BOOKING"], rows)
}

fn sheet(hold: &HoldView) -> String {
    table::sheet([
        ("hold", hold.id.to_string()),
        ("resource", hold.resource_id.to_string()),
        ("holder", shown(&hold.holder_id)),
        ("from", until(hold.starts_at)),
        ("to", until(hold.ends_at)),
        ("status", hold.status.as_str().to_owned()),
        ("until", until(hold.expires_at)),
        ("booking", booking(hold)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_without_the_white_space_around_it_and_never_shown() {
        let token = HoldToken::generate().unwrap();
        let text = token.expose();
        assert_eq!(token_in(format!(" {text}\n").as_bytes(), "it").unwrap(), token);
        let long = "x".repeat(5000);
        let twice = format!("{text} {text}");
        let json = format!("{{\"token\": \"{text}\"}}");
        for bad in ["", "\n", &twice, &json, &text[1..], &long] {
            let why = token_in(bad.as_bytes(), "it").unwrap_err().to_string();
            assert!(why.starts_with("it has no token of a hold") && !why.contains(&text[4..]), "{why}");
        }
        assert!(token_in(&b"bht_\xff"[..], "it").is_err());
    }

    #[test]
    fn no_more_is_read_than_a_token_can_be_long() {
        assert!(token_in(io::repeat(b'x'), "it").is_err());
    }
}
