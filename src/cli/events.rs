//! `berth events`: the event log, and with `--follow` what happens as it happens.

use serde_json::{Map, Value};

use super::args::EventsArgs;
use super::lease::until;
use super::output::Output;
use super::patience::{Pace, Patience};
use crate::client::Client;
use crate::service::views::EventView;

/// Events that are read at once.
const PAGE: usize = 1_000;

pub(super) async fn run(args: &EventsArgs, client: &Client, output: &mut Output<'_>, pace: Pace) -> anyhow::Result<()> {
    if args.follow { follow(args, client, output, pace).await } else { list(args, client, output).await }
}

/// Prints what there is. A log may be long, so it is printed page by page, as one object all the same.
async fn list(args: &EventsArgs, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let mut after = args.since.unwrap_or(0);
    let mut before = "{\"events\":[\n";
    loop {
        let page = client.events(after, PAGE, args.event).await?;
        for event in &page.events {
            if output.json() {
                output.data(&format!("{before}{}", serde_json::to_string(event)?))?;
            } else {
                output.line(&told(event))?;
            }
            before = ",\n";
        }
        after = after.max(page.last_seq);
        if page.events.len() < PAGE {
            break;
        }
    }
    let none = before != ",\n";
    if output.json() {
        output.data(&format!("{}\n],\"lastSeq\":{after}}}\n", if none { before.trim_end() } else { "" }))?;
    } else if none {
        output.talk("no events");
    }
    Ok(())
}

/// Prints what happens until it is stopped. A stream that is cut off is opened again where it was.
async fn follow(args: &EventsArgs, client: &Client, output: &mut Output<'_>, pace: Pace) -> anyhow::Result<()> {
    let mut after = args.since;
    let mut patience = Patience::new(pace);
    let mut stream = client.event_stream(after, args.event).await?;
    loop {
        patience.heard();
        let cut = loop {
            match stream.next().await {
                Ok(Some(event)) if output.json() => output.data(&format!("{}\n", serde_json::to_string(&event)?))?,
                Ok(Some(event)) => output.line(&told(&event))?,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            patience.heard();
        };
        after = stream.last_seq().or(after);
        match cut {
            Some(error) => patience.after(error).await?,
            None => tokio::time::sleep(pace.pause).await,
        }
        patience.heard();
        stream = loop {
            match client.event_stream(after, args.event).await {
                Ok(stream) => break stream,
                Err(error) => patience.after(error).await?,
            }
        };
    }
}

/// One line: when, what, the facts, and the worker that has relayed it.
fn told(event: &EventView) -> String {
    let worker = event.worker_id.as_ref().map(|worker| format!(" worker={worker}")).unwrap_or_default();
    let facts = facts(&event.payload) + &worker;
    format!("{}  {:<22}  {}", until(event.timestamp), event.event.as_str(), facts.trim_start()).trim_end().to_owned()
}

/// What a line has room for; what a request asked for in full is in the JSON.
fn facts(payload: &Map<String, Value>) -> String {
    let plain = payload.iter().filter_map(|(name, value)| match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::String(text) => Some(format!("{name}={text}")),
        other => Some(format!("{name}={other}")),
    });
    plain.collect::<Vec<_>>().join(" ")
}
