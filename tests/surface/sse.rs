//! Server-sent events as they come, read by hand.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

use crate::http::{Call, Door};

/// An open stream.
pub struct Stream {
    from: BufReader<Box<dyn Read + Send>>,
    /// What has come and is not told yet.
    text: String,
}

/// One thing that a stream said. A number without an event has no name and no data.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub id: Option<u64>,
    pub event: String,
    pub data: Value,
}

impl Stream {
    /// Opens a stream, which must be one.
    #[track_caller]
    pub fn open(door: &Door, path: &str) -> Self {
        Self::with(door, &Call { method: "GET", path, ..Call::default() })
    }

    /// Opens a stream as a client does that was cut off after this event.
    #[track_caller]
    pub fn resume(door: &Door, path: &str, last: u64) -> Self {
        let last = last.to_string();
        Self::with(door, &Call { method: "GET", path, ..Call::default() }.header("Last-Event-ID", &last))
    }

    #[track_caller]
    fn with(door: &Door, call: &Call<'_>) -> Self {
        let mut stream =
            Self { from: BufReader::new(door.open(call).expect("the node is there")), text: String::new() };
        let status = stream.line();
        assert!(status.starts_with("HTTP/1.1 200 "), "{}: {status}", call.path);
        let mut head = String::new();
        loop {
            let line = stream.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            head.push_str(&format!("{line}\n"));
        }
        for header in ["content-type: text/event-stream\n", "cache-control: no-store\n", "transfer-encoding: chunked\n"]
        {
            assert!(head.contains(header), "{head} lacks {header}");
        }
        stream
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it goes on in time");
        line.trim_end().to_owned()
    }

    /// The next that it says; none when it has ended in order.
    #[track_caller]
    pub fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                // A comment keeps the connection alive and says nothing.
                if let Some(told) = parse(&block) {
                    return Some(told);
                }
                continue;
            }
            let size = self.line();
            let size = usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("{size:?} is no size of a chunk"));
            let mut chunk = vec![0; size + 2];
            self.from.read_exact(&mut chunk).expect("the chunk is whole");
            if size == 0 {
                assert_eq!(self.text, "", "it ended in the middle of an event");
                return None;
            }
            chunk.truncate(size);
            self.text.push_str(&String::from_utf8(chunk).expect("it says UTF-8"));
        }
    }

    /// The next event, which must have this name; its data.
    #[track_caller]
    pub fn expect(&mut self, event: &str) -> Value {
        let told = self.next().unwrap_or_else(|| panic!("it ended before {event}"));
        assert_eq!(told.event, event, "{told:?}");
        told.data
    }

    /// The number that a stream of numbered events begins with.
    #[track_caller]
    pub fn start(&mut self) -> u64 {
        let told = self.next().expect("it begins with a number");
        assert_eq!((told.event.as_str(), &told.data), ("", &Value::Null));
        told.id.expect("it begins with a number")
    }
}

fn parse(block: &str) -> Option<Told> {
    let mut told = Told { id: None, event: String::new(), data: Value::Null };
    let mut empty = true;
    for line in block.lines() {
        let (field, value) = line.split_once(": ").or_else(|| line.split_once(':'))?;
        match field {
            "" => continue,
            "id" => told.id = Some(value.parse().expect("a number of the log")),
            "event" => told.event = value.to_owned(),
            "data" => told.data = serde_json::from_str(value).expect("JSON"),
            other => panic!("unexpected field {other}"),
        }
        empty = false;
    }
    (!empty).then_some(told)
}
